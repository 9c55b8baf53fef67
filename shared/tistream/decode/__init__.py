"""Decodes rows of TiDB to Arrow columns and JSON text (upstream-formats 3 and 4), vectorised: no Python runs per value.

`keys` is plain numpy. `rows` and `json_text` use kernels that are compiled at the first call and cached on disk. A
service calls `warm()` before its first request, and a changefeed `warm_messages()` too.
"""

from __future__ import annotations


def warm() -> None:
    """Compile the kernels that pulls need, or load them from the cache, by decoding a small table of all types."""
    from tistream.decode.warmup import warm_kernels  # noqa: PLC0415  # keeps numba out of `tistream.decode.keys`

    warm_kernels()


def warm_messages() -> None:
    """Compile the kernel that writes messages of changefeeds, or load it from the cache. Pulls do not use it."""
    from tistream.decode.warmup import warm_message_kernel  # noqa: PLC0415

    warm_message_kernel()
