"""Patched, audited, ready-to-install LLM engine builds for consumer Ampere GPUs."""

__version__ = "0.1.0"
