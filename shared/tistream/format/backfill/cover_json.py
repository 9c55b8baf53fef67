"""Encodes a task's bases for a manifest, as `[[start hex, end hex, base_ts], …]` in key order. Pure.

A base states that all rows with keys in a span are known as of base_ts. The rows themselves are in the version index
(IndexPart.basis). A checkpoint manifest restates all bases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tistream.model.base_cover import Base, Cover
from tistream.model.span import KeySpan


def cover_to_json(cover: Cover) -> list[list[Any]]:
    """Encode bases as a JSON array; keys are hexadecimal."""
    return [[base.span.start.hex(), base.span.end.hex(), base.base_ts] for base in cover]


def cover_from_json(data: Iterable[Sequence[Any]]) -> Cover:
    """Decode bases that cover_to_json has encoded."""
    return tuple(Base(KeySpan(bytes.fromhex(start), bytes.fromhex(end)), base_ts) for start, end, base_ts in data)
