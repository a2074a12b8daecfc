"""wheel: putting wheels together, and reading them."""

from builder.wheel.assemble import WheelResult, assemble
from builder.wheel.locks import write_locks
from builder.wheel.parts import Parts, kernels_path

__all__ = ["Parts", "WheelResult", "assemble", "kernels_path", "write_locks"]
