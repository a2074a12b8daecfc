"""native: the compiled files of a wheel, for one architecture."""

from builder.native.layer import Layer, cost, forecast, native_layer, require_tools
from builder.native.result import Extra, NativeResult

__all__ = [
    "Extra",
    "Layer",
    "NativeResult",
    "cost",
    "forecast",
    "native_layer",
    "require_tools",
]
