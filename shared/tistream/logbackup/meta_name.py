"""Parses the names of the metadata objects of a log backup. A name contains hints that let a reader skip the object;
only the content is authoritative.

| written by | name |
|---|---|
| 6.1 to 8.5.2 | `{min_resolved_ts}-{uuid}`, decimal |
| 8.5.3, 8.5.4 | `{flush_ts:016X}-{min_begin_ts:016X}-{min_ts:016X}-{max_ts:016X}` |
| 8.5.5 | the same, sometimes followed by `-SYNTHETIC{hex}` |
| newest | `{flush_ts:016X}{store_id:016X}-d{…}l{…}u{…}p{…}`: tags in any order, each 16 hex digits; others too |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tistream.model.ts import from_physical_ms

SUFFIX = ".meta"
LATE_MS = 3_600_000  # a slow store may add names whose flush_ts is this far below the newest one

_HEX = "[0-9A-Fa-f]{16}"
_FOUR = re.compile(rf"({_HEX})-({_HEX})-({_HEX})-({_HEX})(?:-SYNTHETIC[0-9A-Fa-f]*)?")
_TAGGED = re.compile(rf"({_HEX})({_HEX})-((?:[A-Za-z]{_HEX})+)")
_TAG = re.compile(rf"([A-Za-z])({_HEX})")


@dataclass(frozen=True, slots=True)
class MetaName:
    """The hints in the name of a metadata object. flush_ts: when the flush began. max_ts: the highest ts of the
    object's keys. max_ts and store_id are None if the name does not state them."""

    flush_ts: int
    max_ts: int | None
    store_id: int | None = None


def parse(name: str) -> MetaName | None:
    """Parse the last part of an object's key; None if the name has no form whose hints are reliable."""
    stem = name.removesuffix(SUFFIX)
    if found := _FOUR.fullmatch(stem):
        flush_ts, _, _, max_ts = (int(part, 16) for part in found.groups())
        return MetaName(flush_ts, max_ts)
    if found := _TAGGED.fullmatch(stem):
        tags = {tag: int(number, 16) for tag, number in _TAG.findall(found[3])}
        return MetaName(int(found[1], 16), tags.get("u"), int(found[2], 16))
    return None


def list_after(names: Iterable[str]) -> str:
    """Given the known names of metadata objects, the name after which a LIST finds every new one. It is empty, so
    everything must be listed, if a known name does not sort by time."""
    newest = 0
    for name in names:
        hints = parse(name)
        if hints is None:
            return ""
        newest = max(newest, hints.flush_ts)
    late = newest - from_physical_ms(LATE_MS)
    return f"{late:016X}" if late > 0 else ""
