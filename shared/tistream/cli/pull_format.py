"""What `tistream pull` may be asked to write; apart, so that the command line needs nothing of how."""

from __future__ import annotations

from enum import StrEnum


class PullFormat(StrEnum):
    """The parameter `format` of a pull."""

    NDJSON = "ndjson"
    ARROW = "arrow"
    PARQUET = "parquet"
