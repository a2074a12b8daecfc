"""One call, before any of vLLM is imported, that lets its engine run on a CPU."""

from __future__ import annotations

from sm86kit.proof import interpret, use_package


def pretend() -> None:
    """Interpreter, package, believed platform, stand-ins for FlashAttention, recorded graphs."""
    interpret()
    use_package()
    from sm86kit.believe import believe

    believe()
    from sm86kit import capture, eager

    eager.install()
    capture.install()
