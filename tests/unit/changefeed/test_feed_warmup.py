"""The kernels of messages and partitions are compiled before the first event comes."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import tistream_changefeed
from tistream_changefeed.warmup import warm_kernels


def kernels() -> dict[str, Any]:
    """Every kernel of the service's modules, by name; helpers that are compiled into others are none."""
    found: dict[str, Any] = {}
    for info in pkgutil.walk_packages(tistream_changefeed.__path__, "tistream_changefeed."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, one in vars(module).items():
            if hasattr(one, "py_func") and one.__module__ == info.name and "forceinline" not in one.targetoptions:
                found[f"{info.name}.{name}"] = one
    return found


def test_every_kernel_is_compiled() -> None:
    warm_kernels()
    found = kernels()
    assert len(found) > 10
    assert [name for name, one in found.items() if not one.signatures] == []
