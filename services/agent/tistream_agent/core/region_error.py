"""Parses the error with which TiKV ends a subscription. The kind of the error decides what the agent does next
(upstream-formats 6.6). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tistream_agent.core.wire import ErrorKind

_U64 = (1 << 64) - 1
_ID_END = 1 << 63


@dataclass(frozen=True, slots=True)
class RegionError:
    """The reason why TiKV ended a subscription.

    `leader_store`: for NOT_LEADER the store of the new leader; 0 if it is unknown. `backoff_ms`: for SERVER_IS_BUSY the
    requested pause; 0 if TiKV requests none. `detail`: text for the status.
    """

    kind: ErrorKind
    leader_store: int = 0
    backoff_ms: int = 0
    detail: str = ""


def parse(data: bytes) -> RegionError:
    """Parse a serialized `cdcpb.Error`. Raises ValueError if it is malformed."""
    kind, body = ErrorKind.UNKNOWN, b""
    for field, value in _fields(data):
        if isinstance(value, bytes) and 1 <= field <= 8:
            kind, body = ErrorKind(field), value
    inner = dict(_fields(body))  # the last of each field counts
    match kind:
        case ErrorKind.NOT_LEADER:
            leader = inner.get(2, b"")
            store = dict(_fields(leader)).get(2, 0) if isinstance(leader, bytes) else 0
            return RegionError(kind, leader_store=store if isinstance(store, int) and store < _ID_END else 0)
        case ErrorKind.SERVER_IS_BUSY:
            backoff = inner.get(2, 0)
            return RegionError(kind, backoff_ms=backoff if isinstance(backoff, int) else 0, detail=_text(inner.get(1)))
        case ErrorKind.COMPATIBILITY:
            return RegionError(kind, detail=f"TiKV requires version {_text(inner.get(1))}")
        case ErrorKind.CLUSTER_ID_MISMATCH:
            current, sent = (int(inner[field]) if isinstance(inner.get(field), int) else 0 for field in (1, 2))
            return RegionError(kind, detail=f"TiKV is of cluster {current}, the agent of {sent}")
        case _:
            return RegionError(kind)


def _text(value: int | bytes | None) -> str:
    return value.decode(errors="replace")[:200] if isinstance(value, bytes) else ""


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of each varint and length-delimited field of a protobuf message; other fields are
    skipped. Raises ValueError if the bytes are malformed."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 2:
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise ValueError("a field is longer than its message")
                yield tag >> 3, data[at : at + size]
                at += size
            case 1 | 5 as wire:
                at += 8 if wire == 1 else 4
                if at > len(data):
                    raise ValueError("a field is longer than its message")
            case other:
                raise ValueError(f"wire type {other}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at >= len(data):
            raise ValueError("a number is truncated")
        value |= (data[at] & 127) << (7 * place)
        at += 1
        if data[at - 1] < 128:
            return value & _U64, at
    raise ValueError("a number has more than ten bytes")


def unusable_store(store: int, streams: int, reason: str) -> str:
    """Say why an agent reads nothing more from a store: within ten minutes it ended `streams` streams whose messages
    contradict what was requested. `reason` is that of the last one."""
    return (
        f"{streams} streams of store {store} could not be used within ten minutes: {reason}. No change is missing in "
        "the files: upgrade that TiKV, or move its leaders away, and restart the agent, which continues after its last "
        "file"
    )
