"""Decodes rows of TiDB to Arrow columns and JSON text (upstream-formats 3 and 4), in numpy and compiled code.

The modules `rows` and `json_text` use kernels that are compiled at their first call and cached on disk, which may take
seconds. So a service calls `warm()` before its first request, and a changefeed calls `warm_messages()` too. The module
`keys` has no kernels.
"""

from __future__ import annotations


def warm() -> None:
    """Compile the kernels that pulls need, or load them from the cache on disk, by decoding a small table with a column
    of each type."""
    from tistream.decode.warmup import warm_kernels  # noqa: PLC0415  # keeps numba out of `tistream.decode.keys`

    warm_kernels()


def warm_messages() -> None:
    """Compile the kernel that writes messages of changefeeds, or load it from the cache on disk. Only changefeeds need
    it."""
    from tistream.decode.warmup import warm_message_kernel  # noqa: PLC0415

    warm_message_kernel()
