"""A CUDA graph on a CPU: what capture records, what replay repeats, what a host read is.

Like a capture, `Graph` executes nothing: it keeps every PyTorch operation and every Triton
launch with the tensors and host constants that they were given. Results of recorded operations
hold garbage until the first replay, and no Python runs again on replay. Tensors that stand for
device memory are registered with `device`; to read one on the host is a synchronisation, which
is noted, and an error while capturing, as on a GPU (cudaErrorStreamCaptureUnsupported).

Emulation: operations run in Triton's interpreter and in PyTorch on a CPU.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import triton.runtime.interpreter as interpreter
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Names of host reads of device tensors outside of a capture.
syncs: list[str] = []
_capturing: list[Graph] = []
_memory: set[int] = set()
_kept: list[torch.Tensor] = []


class HostReadError(RuntimeError):
    """A device tensor was read on the host while capturing."""


def device(tensor: torch.Tensor) -> torch.Tensor:
    """Let a tensor stand for device memory."""
    _memory.add(tensor.untyped_storage().data_ptr())
    _kept.append(tensor)  # an address that is used again would stand for it too
    return tensor


def forget() -> None:
    """No tensor stands for device memory any more."""
    _memory.clear()
    _kept.clear()
    syncs.clear()


def capturing() -> bool:
    """Whether a graph is being captured."""
    return bool(_capturing)


@contextmanager
def as_device_code() -> Iterator[None]:
    """What runs here is a kernel's own work: it may read device memory, and is not recorded."""
    memory, graphs = set(_memory), list(_capturing)
    _memory.clear()
    _capturing.clear()
    try:
        with _disable_current_modes():
            yield
    finally:
        _memory.update(memory)
        _capturing.extend(graphs)


def poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with what memory holds that no kernel has written."""
    if tensor.dtype.is_floating_point:
        tensor.fill_(float("nan"))
    elif tensor.dtype is not torch.bool:
        tensor.fill_(101)


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


class Graph(TorchDispatchMode):  # type: ignore[misc]
    """One graph.

    Attributes:
        ops: what was recorded: (kind, function, arguments, keyword arguments, results).
        output: what the captured function returned; replay fills it.
    """

    def __init__(self, host: list[torch.Tensor]) -> None:
        super().__init__()
        self.ops: list[tuple[str, Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.output: Any = None
        self._kept: list[torch.Tensor] = []
        self._host = {tensor.untyped_storage().data_ptr() for tensor in host}

    def capture(self, function: Any) -> Any:
        """Record what a function does.

        Raises:
            HostReadError: it reads device memory on the host.
        """
        _capturing.append(self)
        try:
            with self:
                self.output = function()
        finally:
            _capturing.pop()
        return self.output

    def replay(self) -> Any:
        """Do what was recorded, with the same tensors and constants."""
        for kind, function, args, kwargs, results in self.ops:
            if kind == "triton":
                _execute(function, *args, **kwargs)
                continue
            got = _tensors(function(*args, **kwargs))
            for result, value in zip(results or (), got, strict=False):
                result.copy_(value)
        return self.output

    def record(self, kind: str, function: Any, args: Any, kwargs: Any, results: Any = None) -> None:
        """Add an operation."""
        self.ops.append((kind, function, args, kwargs, results))
        self._kept += _tensors((args, kwargs))

    def names(self) -> list[str]:
        """Names of the recorded kernels and operations."""
        return [
            op[1].fn.__name__ if op[0] == "triton" else getattr(op[1], "__name__", str(op[1]))
            for op in self.ops
        ]

    def _on_host(self, tensors: list[torch.Tensor]) -> bool:
        return bool(tensors) and all(
            tensor.untyped_storage().data_ptr() in self._host for tensor in tensors
        )

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        self._kept += given
        if str(func).startswith("aten._local_scalar_dense") and not self._on_host(given):
            raise HostReadError(str(func))
        if self._on_host(given):  # arithmetic on the host is Python's business
            out = func(*args, **kwargs)
            for tensor in _tensors(out):
                self._kept.append(tensor)
                self._host.add(tensor.untyped_storage().data_ptr())
            return out
        if func._schema.is_mutable:
            self.record("torch", func, args, kwargs)
            written = [
                kwargs[spec.name] if spec.name in kwargs else args[place]
                for place, spec in enumerate(func._schema.arguments)
                if spec.alias_info is not None and spec.alias_info.is_write
                and (spec.name in kwargs or place < len(args))
            ]  # fmt: skip
            assert len(written) == 1, f"{func} writes {len(written)} arguments"
            return written[0]
        out = func(*args, **kwargs)
        made = _tensors(out)
        self._kept += made
        sources = {tensor.untyped_storage().data_ptr() for tensor in given}
        if all(not one.numel() or one.untyped_storage().data_ptr() in sources for one in made):
            return out  # a view
        if "empty" not in str(func):
            self.record("torch", func, args, kwargs, made)
        for tensor in made:
            poison(tensor)
        return out


def run_or_record(function: Any, *args: Any) -> None:
    """Run a kernel's stand-in, or record it if a graph is being captured."""
    if _capturing:
        _capturing[-1].record("torch", function, args, {})
        return
    with as_device_code():
        function(*args)


_execute = interpreter.GridExecutor.__call__


def _launch(self: Any, *args: Any, **kwargs: Any) -> Any:
    if _capturing:
        _capturing[-1].record("triton", self, args, kwargs)
        return None

    def plain(value: Any) -> Any:
        return int(value) if isinstance(value, bool) else value  # the interpreter loads no int1

    with _disable_current_modes():
        return _execute(
            self, *map(plain, args), **{key: plain(value) for key, value in kwargs.items()}
        )


def install() -> None:
    """Catch Triton launches and host reads; once, before anything is captured."""
    interpreter.GridExecutor.__call__ = _launch
    torch.cuda.is_current_stream_capturing = capturing
    torch.accelerator.empty_cache = lambda: None
    for name in ("tolist", "item", "cpu", "numpy", "__int__", "__bool__", "__index__"):
        original = getattr(torch.Tensor, name)

        def seen(
            self: torch.Tensor,
            *args: Any,
            _original: Any = original,
            _name: str = name,
            **more: Any,
        ) -> Any:  # fmt: skip
            if self.untyped_storage().data_ptr() in _memory:
                if _capturing:
                    raise HostReadError(f"{_name} of a device tensor")
                syncs.append(_name)
            return _original(self, *args, **more)

        setattr(torch.Tensor, name, seen)
