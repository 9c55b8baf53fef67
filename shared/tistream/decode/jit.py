"""How the kernels of this package are compiled: without the GIL, once per machine.

Numba keeps compiled kernels beside the source and trusts them while *that* file is unchanged, though a kernel also
contains the helpers that it calls from other files. So the cache directory bears a digest of the whole package.
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

# The 64-bit types of kernels. To the type checker both are whole numbers: numpy's own types mix with nothing.
i64 = cast(Callable[[Any], int], np.int64)
u64 = cast(Callable[[Any], Any], np.uint64)


def kernel(function: Function) -> Function:
    """Compile on first call, for the types of that call; keep the machine code on disk."""
    config: Any = numba.core.config
    before = config.CACHE_DIR
    config.CACHE_DIR = _CACHE_DIR
    try:
        compiled = numba.njit(function, cache=bool(_CACHE_DIR), nogil=True, error_model="numpy")
    finally:
        config.CACHE_DIR = before
    return cast(Function, compiled)


def inline(function: Function) -> Function:
    """A helper that only kernels call; it is compiled into them."""
    return cast(Function, numba.njit(function, nogil=True, error_model="numpy", forceinline=True))


def _package_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _writable_dir(candidates: list[Path]) -> str:
    """The first that can be made and written to; empty if none can: then every process compiles for itself.

    Never a directory that other users can write to: the cache is code.
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
    """The operator's NUMBA_CACHE_DIR, else beside the package, else the user's cache; per version of the package."""
    name = f"tistream-kernels-{_package_digest()}"
    if chosen:
        return [Path(chosen) / name]
    home = os.path.expanduser("~")
    return [Path(__file__).parent / "__pycache__" / name, Path(home) / ".cache" / "tistream" / name]


_CACHE_DIR = _writable_dir(_candidates(os.environ.get("NUMBA_CACHE_DIR", "")))
