"""Combines events of open-protocol into Kafka messages: one message holds one DDL or resolved ts, or several row
events. Pure.

A Kafka key is the version 1 and, for each event, the length of its key and the key. A Kafka value is, for each event,
the length of its value and the value. Versions and lengths have 8 bytes, big endian.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.decode.kernels.arrow_buffers import I64, U8, binary_array, flat_bytes
from tistream.decode.kernels.jit import i64, inline, kernel
from tistream.decode.kernels.memory import copy_bytes, poke64
from tistream_changefeed.protocols.limits import RECORD_BYTES
from tistream_changefeed.protocols.messages import Messages

_WORD = 8
FRAME_BYTES = 3 * _WORD  # of a message with one event
_VERSION = (1).to_bytes(_WORD, "big")


def framed_key(key: bytes) -> bytes:
    """The Kafka key of a message with one event, whose own key is `key`."""
    return _VERSION + len(key).to_bytes(_WORD, "big") + key


def framed_value(value: bytes) -> bytes:
    """The Kafka value of a message with one event, whose own value is `value`."""
    return len(value).to_bytes(_WORD, "big") + value


@dataclass(frozen=True, slots=True)
class Framed:
    """Kafka messages of row events. Message i has the events `order[starts[i]:starts[i + 1]]` of the argument
    `order` of `framed`. `keys` and `values` are large_binary arrays."""

    keys: pa.Array
    values: pa.Array
    starts: Int64s


def framed(messages: Messages, order: Int64s, breaks: Int64s, events_max: int, bytes_max: int) -> Framed:
    """Combine the events `order` of `messages`, in this order, into as few Kafka messages as possible. A message has at
    most `events_max` events (`max-batch-size`) and `bytes_max` bytes as TiCDC counts them, but at least one event.
    Messages also end before each of the positions `breaks` in `order`, which ascend: another partition begins there."""
    assert messages.keys is not None, "events of open-protocol have keys"
    keys, values = flat_bytes(messages.keys), flat_bytes(messages.values)
    ends = np.append(breaks, len(order)).astype(np.int64)
    order = np.ascontiguousarray(order, np.int64)
    starts = np.empty(len(order) + 1, np.int64)
    count = _cut(keys.lengths, values.lengths, order, ends, events_max, bytes_max, starts)
    starts = starts[: count + 1]
    return Framed(
        _gathered(keys.data, keys.offsets, order, starts, _WORD),
        _gathered(values.data, values.offsets, order, starts, 0),
        starts,
    )


def _gathered(data: U8, offsets: I64, order: Int64s, starts: Int64s, head: int) -> pa.Array:
    count = len(starts) - 1
    size = int((offsets[order + 1] - offsets[order]).sum()) + _WORD * len(order) + head * count
    out, out_offsets = np.empty(size, np.uint8), np.empty(count + 1, np.int64)
    _put_frames(data, offsets, order, starts, head, out, out_offsets)
    return binary_array(out, out_offsets, None, text=False)


@kernel
def _cut(key_bytes: I64, value_bytes: I64, order: I64, ends: I64, events_max: int, bytes_max: int, starts: I64) -> int:
    """Decide where each Kafka message begins. `key_bytes`, `value_bytes`: the sizes of each event. `order`: the events
    in the order in which they are sent. `ends`: the ascending positions in `order` before which a message must end. A
    message has at most `events_max` events and `bytes_max` bytes, or one event. Writes to `starts`, which has room for
    len(order) + 1, the position in `order` of each message's first event, and len(order) after the last. Returns the
    number of messages."""
    count = 0
    held = 0
    size = 0
    run = 0
    for place in range(len(order)):
        added = key_bytes[order[place]] + value_bytes[order[place]] + 2 * _WORD
        while run < len(ends) and ends[run] < place:
            run += 1
        fresh = run < len(ends) and ends[run] == place
        if place == 0 or fresh or held >= events_max or size + added > bytes_max:
            starts[count] = place
            count += 1
            held = 0
            size = _WORD + RECORD_BYTES
        held += 1
        size += added
    starts[count] = len(order)
    return count


@kernel
def _put_frames(data: U8, offsets: I64, order: I64, starts: I64, head: int, out: U8, out_offsets: I64) -> None:
    """Write the keys, or the values, of the Kafka messages to `out`, and the bounds of the messages to
    `out_offsets`. `head` is the length of the version before each: 8 for keys, 0 for values. The other arguments
    are as in Framed: message i has the events `order[starts[i]:starts[i + 1]]`."""
    at = 0
    out_offsets[0] = 0
    for message in range(len(starts) - 1):
        if head:
            poke64(out, at, _big_endian(i64(1)))
            at += head
        for place in range(starts[message], starts[message + 1]):
            first = offsets[order[place]]
            size = offsets[order[place] + 1] - first
            poke64(out, at, _big_endian(size))
            at += _WORD
            copy_bytes(out, at, data, first, size)
            at += size
        out_offsets[message + 1] = at


@inline
def _big_endian(value: int) -> int:
    """The 64-bit word that has the bytes of `value` in the opposite order, so that it is stored big endian. `value` is
    below 2^31."""
    low = ((value & 0xFF) << 24) | ((value & 0xFF00) << 8) | ((value >> 8) & 0xFF00) | ((value >> 24) & 0xFF)
    return low << 32
