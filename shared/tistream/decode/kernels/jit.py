"""Compiles the kernels of this package. Kernels run without the GIL, and are compiled once per machine.

Numba keeps a cached kernel until the kernel's own source file changes, although the machine code also contains helpers
from other files. Therefore the name of the cache directory contains a digest of the whole package.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

# The 64-bit types of kernels. The type checker sees them as int or Any, because numpy's types cannot be mixed with int.
i64 = cast(Callable[[Any], int], np.int64)
u64 = cast(Callable[[Any], Any], np.uint64)


def kernel(function: Function) -> Function:
    """Decorate a function that is compiled at its first call, for the types of that call. The machine code is cached on
    disk."""
    config: Any = numba.core.config
    before = config.CACHE_DIR
    config.CACHE_DIR = _CACHE_DIR
    try:
        compiled = numba.njit(function, cache=bool(_CACHE_DIR), nogil=True, error_model="numpy")
    finally:
        config.CACHE_DIR = before
    return cast(Function, compiled)


def inline(function: Function) -> Function:
    """Decorate a helper function that only kernels call. It is compiled into them."""
    return cast(Function, numba.njit(function, nogil=True, error_model="numpy", forceinline=True))


def _package_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _writable_dir(candidates: list[Path]) -> str:
    """The first candidate that exists and can be written to; a candidate that does not exist is created. Returns an
    empty text if there is no such candidate; then compiled code is not cached.

    A candidate must not be a directory that other users can write to, because the cache is executable code.
    """
    for path in candidates:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK):
            return str(path)
    return ""


def _candidates(chosen: str) -> list[Path]:
    """The possible cache directories, best first. If `chosen` (NUMBA_CACHE_DIR) is set, there is only one, below it.
    Otherwise there is one below the package and one in the user's cache. Each version of the package has its own
    directory."""
    name = f"tistream-kernels-{_package_digest()}"
    if chosen:
        return [Path(chosen) / name]
    home = os.path.expanduser("~")
    return [Path(__file__).parent / "__pycache__" / name, Path(home) / ".cache" / "tistream" / name]


_CACHE_DIR = _writable_dir(_candidates(os.environ.get("NUMBA_CACHE_DIR", "")))
