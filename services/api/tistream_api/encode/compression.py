"""Chooses and applies the Content-Encoding of an answer: zstd or gzip, if Accept-Encoding names them. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import zstandard

from tistream.read.events import Events
from tistream_api.encode.encoding import Encoder
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.piece import Piece

LEVEL = 1  # of both codings: an answer is made once, for one reader that waits for it
CODINGS = ("zstd", "gzip")  # in order of preference, if the reader gives them equal weight
COMPRESSED_FORMATS = ("parquet",)  # already compressed
_GZIP = 31  # zlib's window bits, with gzip's header and trailer


def coding_of(accept_encoding: str | None, form: str) -> str | None:
    """The Content-Encoding of an answer in the format `form`. None: the answer is not compressed, also for a reader
    that only accepts `*`."""
    if accept_encoding is None or form in COMPRESSED_FORMATS:
        return None
    weights = dict(map(_weighed, accept_encoding.split(",")))
    best = max(CODINGS, key=lambda coding: weights.get(coding, 0.0))
    return best if 0 < weights.get(best, 0.0) >= weights.get("identity", 0.0) else None


def _weighed(part: str) -> tuple[str, float]:
    """Parse one entry of Accept-Encoding. Returns (the coding, its weight q), where the weight is 0 if it is
    malformed."""
    name, _, more = part.partition(";")
    text = more.strip().removeprefix("q=") if more else "1"
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    return name.strip().lower(), weight if 0 <= weight <= 1 else 0.0


class Compressor(Protocol):
    """Compresses an answer piece by piece."""

    def compress(self, data: Piece) -> bytes:
        """Compress, and return the bytes that can be sent now."""

    def pushed(self) -> bytes:
        """Return the compressed form of everything that was held back, so that a reader can decompress all input so
        far."""

    def flush(self) -> bytes:
        """Finish the stream, and return its last bytes."""


class _Zstd:
    def __init__(self) -> None:
        self._stream = zstandard.ZstdCompressor(level=LEVEL).compressobj()

    def compress(self, data: Piece) -> bytes:
        return bytes(self._stream.compress(data))

    def pushed(self) -> bytes:
        return bytes(self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))

    def flush(self) -> bytes:
        return bytes(self._stream.flush())


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)

    def compress(self, data: Piece) -> bytes:
        return self._stream.compress(data)

    def pushed(self) -> bytes:
        return self._stream.flush(zlib.Z_SYNC_FLUSH)

    def flush(self) -> bytes:
        return self._stream.flush()


class CompressedEncoder:
    """An encoder whose output is compressed. The position at the end of an answer is flushed at once, so that a reader
    of a stream sees it."""

    def __init__(self, inner: Encoder, compressor: Compressor) -> None:
        self._inner, self._compressor = inner, compressor

    def events(self, events: Events) -> Iterator[Piece]:
        """Implement Encoder.events: encode the next events, which may be empty."""
        return self._sent(self._inner.events(events))

    def end(self, end: PageEnd) -> Iterator[Piece]:
        """Implement Encoder.end: encode the position at the end of an answer."""
        yield from self._sent(self._inner.end(end))
        yield self._compressor.pushed()

    def close(self) -> Iterator[Piece]:
        """Implement Encoder.close: encode the end of the answer."""
        yield from self._sent(self._inner.close())
        yield self._compressor.flush()

    def _sent(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            if data := self._compressor.compress(piece):
                yield data


def compressed(encoder: Encoder, coding: str | None) -> Encoder:
    """Wrap an encoder so that its output is compressed with `coding`. Returns the encoder itself if `coding` is
    None."""
    if coding is None:
        return encoder
    return CompressedEncoder(encoder, _compressor(coding))


def compressed_pieces(pieces: Iterator[Piece], coding: str | None) -> Iterator[Piece]:
    """Compress the pieces of a whole answer with this Content-Encoding; None leaves them as they are."""
    if coding is None:
        yield from pieces
        return
    compressor = _compressor(coding)
    for piece in pieces:
        data = compressor.compress(piece)
        if data or not piece:  # an empty piece makes the answer begin
            yield data
    yield compressor.flush()


def _compressor(coding: str) -> Compressor:
    return _Zstd() if coding == "zstd" else _Gzip()
