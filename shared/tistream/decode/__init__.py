"""Rows of TiDB to Arrow columns and JSON text (docs/formats.md). Vectorised: no Python per value.

`keys` is plain numpy; `rows` and `json_text` use kernels compiled on first use and cached on disk: `warm()` them
before the first request.
"""

from __future__ import annotations


def warm() -> None:
    """Compile (or load) every kernel by decoding a tiny table of all types."""
    from tistream.decode.warmup import warm_kernels  # noqa: PLC0415  # keeps numba out of `tistream.decode.keys`

    warm_kernels()
