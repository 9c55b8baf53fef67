"""What a pull's answer is made of: the forms that events and its end can take. (docs/api.md, "Formats")"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tistream_api.encode.arrow_stream import ArrowEncoder
from tistream_api.encode.end import End
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.encode.one_stream import OneStream, OneStreamEncoder
from tistream_api.encode.parquet_tar import ParquetEncoder
from tistream_api.encode.piece import Piece
from tistream_api.read.events import Events
from tistream_api.request.params import PullParams


class Encoder(Protocol):
    """Makes the bytes of one answer; keeps what it must know of what it has sent."""

    def events(self, events: Events) -> Iterator[Piece]:
        """The next events, not empty. What is not given out now is given out with `end`, at the latest."""

    def end(self, end: End) -> Iterator[Piece]:
        """Where the answer stands. A stream may go on behind it."""

    def close(self) -> Iterator[Piece]:
        """The answer is over."""


@dataclass(frozen=True, slots=True)
class Format:
    """One value of the parameter `format` (params.FORMATS)."""

    media_type: str
    new: Callable[[], Encoder]


FORMATS = {
    "ndjson": Format("application/x-ndjson", NdjsonEncoder),
    "arrow": Format("application/vnd.apache.arrow.stream", ArrowEncoder),
    "parquet": Format("application/x-tar", ParquetEncoder),
}


def new_encoder(params: PullParams, one: OneStream | None) -> Encoder:
    """That of one answer; `one` where it is to be a single Arrow stream."""
    return FORMATS[params.format].new() if one is None else OneStreamEncoder(one)
