"""patch: a series on a pristine commit becomes a patched commit, exactly or not at all."""

from builder.patch.directory import apply_to_directory
from builder.patch.stage import PatchRecord, PatchResult, apply_series

__all__ = ["PatchRecord", "PatchResult", "apply_series", "apply_to_directory"]
