"""wheel: putting wheels together, and reading them."""

from builder.wheel.assemble import Parts, WheelResult, assemble, kernels_path
from builder.wheel.locks import write_locks

__all__ = ["Parts", "WheelResult", "assemble", "kernels_path", "write_locks"]
