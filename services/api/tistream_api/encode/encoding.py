"""The interface of encoders, and the formats of a pull's answer (docs/api.md, "Formats"). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tistream.read.events import Events
from tistream_api.encode.arrow_stream import ArrowEncoder
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.encode.one_stream import OneStream, OneStreamEncoder
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.parquet_tar import ParquetEncoder
from tistream_api.encode.piece import Piece
from tistream_api.request.params import PullParams


class Encoder(Protocol):
    """Encodes one answer. Its state depends on what was encoded before."""

    def events(self, events: Events) -> Iterator[Piece]:
        """Encode the next events, which may be empty. Output may be held back until `end`."""

    def end(self, end: PageEnd) -> Iterator[Piece]:
        """Encode the position at the end of an answer. In an endless stream more events may follow."""

    def close(self) -> Iterator[Piece]:
        """Encode what ends the body, after all events and positions."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format of answers: a value of the parameter `format` (params.FORMATS), with its media type and encoder."""

    media_type: str
    new: Callable[[], Encoder]


FORMATS = {
    "ndjson": Format("application/x-ndjson", NdjsonEncoder),
    "arrow": Format("application/vnd.apache.arrow.stream", ArrowEncoder),
    "parquet": Format("application/x-tar", ParquetEncoder),
}


def new_encoder(params: PullParams, one: OneStream | None) -> Encoder:
    """Make the encoder for one answer. `one` is set if the answer must be a single Arrow stream."""
    return FORMATS[params.format].new() if one is None else OneStreamEncoder(one)
