"""Decodes rows of TiDB to Arrow columns and JSON text (upstream-formats 3 and 4), vectorised: no Python runs per value.

`keys` is plain numpy. `rows` and `json_text` use kernels that are compiled at the first call and cached on disk. A
service calls `warm()` before its first request.
"""

from __future__ import annotations


def warm() -> None:
    """Compile every kernel, or load it from the cache, by decoding a small table of all types."""
    from tistream.decode.warmup import warm_kernels  # noqa: PLC0415  # keeps numba out of `tistream.decode.keys`

    warm_kernels()
