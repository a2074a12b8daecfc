"""Makes Triton's interpreter (3.6) do what a GPU does where numpy does something else.

`tl.minimum` and `tl.maximum` pass over NaN (``min.f32``; numpy's propagate it); float to integer
saturates and makes 0 of NaN (``cvt.rzi``; numpy gives INT_MIN); float32 to bfloat16 rounds to
nearest even (the interpreter truncates). PTX ISA 9.0, sections on min, max and cvt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from triton import language as tl
from triton.runtime import interpreter


def faithful() -> None:
    """Install the corrections; once, before kernels run."""
    builder: Any = interpreter.InterpreterBuilder
    builder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)
    builder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    original = builder.cast_impl

    def cast_impl(self: Any, src: Any, dst: Any) -> Any:
        source, target = src.dtype.scalar, dst.scalar
        kind = interpreter._get_np_dtype(dst)
        if source == tl.float32 and target == tl.bfloat16:
            bits = src.data.view(np.uint32)
            rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
            rounded = np.where(np.isnan(src.data), np.uint16(0x7FFF), rounded)
            return interpreter.TensorHandle(rounded.view(kind), target)
        if source.is_floating() and target.is_int():
            plain = np.nan_to_num(src.data.astype(np.float64), nan=0.0)
            limits = np.iinfo(kind)
            whole = np.clip(np.trunc(plain), limits.min, limits.max)
            return interpreter.TensorHandle(whole.astype(limits.dtype), target)
        return original(self, src, dst)

    builder.cast_impl = cast_impl
