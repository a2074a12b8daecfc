"""native: the compiled files of a wheel, for one architecture."""

from builder.native.upstream import Extra, NativeResult, refuse_native_patches, take_upstream

__all__ = ["Extra", "NativeResult", "refuse_native_patches", "take_upstream"]
