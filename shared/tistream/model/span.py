"""Spans of keys. The end `b""` is +infinity, as in TiKV's region boundaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SHOWN_KEY_BYTES = 256


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The keys `k` with `start <= k < end`, compared as bytes. An empty `end` is +infinity."""

    start: bytes
    end: bytes

    def __post_init__(self) -> None:
        assert not self.end or self.start < self.end, f"empty span {self}"

    def __contains__(self, key: bytes) -> bool:
        return key >= self.start and (not self.end or key < self.end)

    def overlaps(self, other: KeySpan) -> bool:
        """Whether the spans have a key in common."""
        return (not other.end or self.start < other.end) and (not self.end or other.start < self.end)

    def touches(self, lowest: bytes, highest: bytes) -> bool:
        """Whether any key of the closed interval [lowest, highest] is in the span."""
        return highest >= self.start and (not self.end or lowest < self.end)

    def clip(self, other: KeySpan) -> KeySpan | None:
        """The intersection with another span; None if it is empty."""
        if not self.overlaps(other):
            return None
        start = max(self.start, other.start)
        if not self.end or not other.end:
            return KeySpan(start, self.end or other.end)
        return KeySpan(start, min(self.end, other.end))


WHOLE = KeySpan(b"", b"")


def merge_spans(spans: Iterable[KeySpan], most: int) -> tuple[KeySpan, ...]:
    """The union of spans: disjoint spans in key order, with gaps between them. If there are more than `most`, the
    result is one span from the first key to the last."""
    out: list[KeySpan] = []
    for span in sorted(spans, key=lambda span: span.start):
        last = out[-1] if out else None
        if last is None or (last.end and last.end < span.start):
            out.append(span)
        elif last.end and (not span.end or span.end > last.end):
            out[-1] = KeySpan(last.start, span.end)
    return tuple(out) if len(out) <= most else (KeySpan(out[0].start, out[-1].end),)


def shown_key(key: bytes) -> str:
    """A key in hexadecimal for messages. A long key is shortened to SHOWN_KEY_BYTES, with its length."""
    if len(key) <= SHOWN_KEY_BYTES:
        return key.hex()
    return f"{key[:SHOWN_KEY_BYTES].hex()}… ({len(key)} bytes)"
