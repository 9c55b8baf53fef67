"""The agent's kernels are compiled before it claims its chain."""

from __future__ import annotations

from typing import Any

import pytest

from tistream_agent.core import kernels, scan_kernel
from tistream_agent.warmup import warm_kernels


def test_every_kernel_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (module, name)
        for module in (kernels, scan_kernel)
        for name, one in vars(module).items()
        if hasattr(one, "py_func") and not name.startswith("_") and one.__module__ == module.__name__
    ]
    called = set()

    def counted(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            called.add(name)
            return function(*arguments)

        return call

    names = {name for _, name in found}
    for module, name in found:
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    warm_kernels()
    assert {"scan", "apply", "gather"} <= names
    assert called == names
