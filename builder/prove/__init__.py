"""Proofs: red without a patch, green with it."""
