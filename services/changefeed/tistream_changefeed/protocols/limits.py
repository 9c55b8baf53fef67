"""Handles messages that are larger than a topic accepts. They are refused, reduced to the handle key, or stored in a
file (claim check). Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.decode.kernels.arrow_buffers import flat_bytes
from tistream.errors import FatalError
from tistream_changefeed.protocols.messages import ClaimFile, Messages
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import kinds
from tistream_changefeed.rows.window import taken

Compression = Literal["none", "lz4", "snappy"]
"""How values are compressed, as in TiCDC: a frame of LZ4, or a block of Snappy."""
RECORD_BYTES = 36  # that a record adds to its key and value, by TiCDC's account


class MessageTooLarge(FatalError):
    """Raised if row events do not fit into messages. The text names the first of them by commit_ts, table and key.
    `events` has the commit_ts and the raw key of each."""

    code = "message-too-large"

    def __init__(self, batch: RowBatch, large: Int64s, size: int, bytes_max: int, *, reduced: bool) -> None:
        """`large` are the indexes of the events in the batch, ascending. `size` is the size of the first one's message,
        in bytes. `reduced`: whether that message has the handle key alone already."""
        database, table = batch.version.name
        at = int(large[0])
        keys = batch.raw.take(pa.array(large)).to_pylist()
        self.events: tuple[tuple[int, bytes], ...] = tuple(zip(batch.commit_ts[large].tolist(), keys, strict=True))
        self.commit_ts, self.table, self.key = int(batch.commit_ts[at]), f"{database}.{table}", batch.raw[at].as_py()
        what = "its message with the handle key alone" if reduced else "its message"
        way = "" if reduced else ", or set large-message-handle-option to handle-key-only or claim-check"
        super().__init__(
            f"table {self.table}, commit_ts {self.commit_ts}, key {self.key.hex()}: {what} has {size} bytes, and "
            f"max-message-bytes is {bytes_max}. Raise max-message-bytes and the topic's max.message.bytes{way}, or "
            "skip the event by name"
        )


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """Names the files `{location}/{name}` in which large messages are stored. A name is a digest of `salt` (the tenant
    and the feed) and of the event, so that a repeat of the event names the same file. With `raw` a file contains only
    the value."""

    location: str
    salt: bytes
    raw: bool = False

    def names(self, batch: RowBatch) -> list[str]:
        """The name of the file for each event."""
        stamps = zip(batch.commit_ts.tolist(), batch.start_ts.tolist(), kinds(batch).tolist(), strict=True)
        return [
            hashlib.sha256(b"%b\0%d/%d/%d/%d/%b" % (self.salt, batch.physical_id, *stamp, raw)).hexdigest() + ".json"
            for stamp, raw in zip(stamps, batch.raw.to_pylist(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Limit:
    """The maximum size of a message. A larger message is refused, or only its handle key is sent (`handle_key_only`,
    `claim_check`). Values are compressed before they are measured (`large-message-handle-compression`); a reader must
    be configured for the compression, because messages do not state it."""

    bytes_max: int = 10 << 20
    handle_key_only: bool = False
    claim_check: ClaimCheck | None = None
    compression: Compression = "none"

    @property
    def refuses(self) -> bool:
        """Whether a larger message is an error, because it is not reduced."""
        return not self.handle_key_only and self.claim_check is None

    def packed(self, value: bytes) -> bytes:
        """The value as it is sent: compressed, unless `compression` is `none`."""
        if self.compression == "none":
            return value
        return bytes(pa.compress(value, codec=self.compression, asbytes=True))

    def packed_all(self, messages: Messages) -> Messages:
        """The messages with their values as they are sent: compressed, unless `compression` is `none`."""
        if self.compression == "none":
            return messages
        values = [None if one is None else self.packed(one) for one in messages.values.to_pylist()]
        return replace(messages, values=pa.array(values, pa.large_binary()))


Reduced = Callable[[RowBatch, Sequence[str] | None], Messages]
"""Encodes events with only the columns of the handle key, and with the locations of their files, if they are given."""
Content = Callable[[bytes | None, bytes], bytes]
"""The content of a file, from the key and the value of a message."""


def in_base64(key: bytes | None, value: bytes) -> bytes:
    """The content of a claim-check file: key and value in base64. A null key becomes an empty text."""
    texts = [base64.b64encode(one).decode() for one in (key or b"", value)]
    return f'{{"key":"{texts[0]}","value":"{texts[1]}"}}'.encode()


def within(
    batch: RowBatch, messages: Messages, limit: Limit, overhead: int, reduced: Reduced, content: Content = in_base64
) -> Messages:
    """The messages as they are sent: values are compressed if `limit` says so, and each message that then exceeds
    `limit` is replaced by one that `reduced` makes, with only the handle key. With a claim check, `content` makes
    the file of each replaced message. `overhead` is the number of bytes that each message takes in addition to its
    key and value. Raises MessageTooLarge if `limit` refuses large messages, if the table has no handle key, or if a
    reduced message is too large."""
    messages = limit.packed_all(messages)
    sizes = _sizes(messages) + overhead
    large = np.flatnonzero(sizes > limit.bytes_max)
    if not len(large):
        return messages
    if limit.refuses or not batch.handle:
        raise MessageTooLarge(batch, large, int(sizes[large[0]]), limit.bytes_max, reduced=False)
    part = taken(batch, large)
    claims: tuple[ClaimFile, ...] = ()
    locations: list[str] | None = None
    if limit.claim_check is not None:
        names = limit.claim_check.names(part)
        kept = _value if limit.claim_check.raw else content
        locations = [f"{limit.claim_check.location}/{name}" for name in names]
        claims = tuple(
            ClaimFile(name, kept(_bytes(messages.keys, at), messages.values[at].as_py()))
            for name, at in zip(names, large.tolist(), strict=True)
        )
    small = limit.packed_all(reduced(part, locations))
    left = _sizes(small) + overhead
    larger = np.flatnonzero(left > limit.bytes_max)
    if len(larger):
        raise MessageTooLarge(part, larger, int(left[larger[0]]), limit.bytes_max, reduced=True)
    places = np.arange(len(batch))
    places[large] = len(batch) + np.arange(len(large))
    keys = None if messages.keys is None else _replaced(messages.keys, small.keys, places)
    return replace(messages, keys=keys, values=_replaced(messages.values, small.values, places), claims=claims)


def check_sizes(batch: RowBatch, messages: Messages, limit: Limit) -> None:
    """Check that no message of these events, with RECORD_BYTES added to its key and value, exceeds `limit.bytes_max`.
    Raises MessageTooLarge."""
    sizes = _sizes(messages) + RECORD_BYTES
    large = np.flatnonzero(sizes > limit.bytes_max)
    if len(large):
        raise MessageTooLarge(batch, large, int(sizes[large[0]]), limit.bytes_max, reduced=False)


def _value(_: bytes | None, value: bytes) -> bytes:
    return value


def _sizes(messages: Messages) -> Int64s:
    sizes = flat_bytes(messages.values).lengths
    return sizes if messages.keys is None else sizes + flat_bytes(messages.keys).lengths


def _bytes(array: pa.Array | None, at: int) -> bytes | None:
    return None if array is None else array[at].as_py()


def _replaced(array: pa.Array, others: pa.Array, places: Int64s) -> pa.Array:
    return pa.concat_arrays([array, others]).take(pa.array(places))
