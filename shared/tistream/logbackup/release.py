"""The record that decides a release (docs/log-backup.md). A release turns the changes of a log backup in a window of
commit_ts into change files. Pure.

A conditional put of its record decides release n. The bytes of its change files depend only on the record and the log.
Therefore any process may execute a release, executing it twice does no harm, and the chain of files cannot fork.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from tistream.errors import CorruptObject
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import MAX_TS
from tistream.schema.records import RestoredTables

VERSION = 1
RESTORES_VERSION = 2  # of a record that names restores: other programs would not put their marks
# The store id that stands for a log backup in the push contract. TiKV's own ids begin at 1, so no store of the tenant
# has it.
STORE_ID = 0
REGION_ID, REGION_VERSION = 1, 1


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """One change file of a release: the changes of `span` with low < commit_ts <= high.

    ts: the file's ts. index: the log index of its rows and its watermark. watermark: whether the file has a
    watermark row; only the last file of (low, high] has one.
    """

    ts: int
    low: int
    high: int
    index: int
    watermark: bool = True
    span: KeySpan = WHOLE


@dataclass(frozen=True, slots=True)
class Release:
    """Release `number` of a tenant, which has the changes with low < commit_ts <= high.

    prev_ts: the ts of the last file before this release, 0 for the first release. base_ts: the tenant's snapshot_ts,
    set in the first release only. url: the location of the log backup. files: its change files. metas: the log
    backup's metadata objects whose slices are read. keep_index: whether index entries are kept. restores: the names of
    the restores by BR that this and earlier releases have marked. restored: those of them that this release marks
    (restored_mark.py).
    """

    number: int
    source_id: str
    url: str
    low: int
    high: int
    prev_ts: int
    base_ts: int | None
    files: tuple[ReleaseFile, ...]
    metas: tuple[str, ...]
    keep_index: bool
    restores: tuple[str, ...] = ()
    restored: tuple[RestoredTables, ...] = ()

    def marked_at(self, one: RestoredTables) -> int:
        """The commit_ts of the mark of one of `restored`. From then on, all tables of the restore are in the schema."""
        return max(one.to_ts, self.low + 1)

    @property
    def next_index(self) -> int:
        """The log index of the next release's first row."""
        return self.files[-1].index + 1


def encode(release: Release) -> bytes:
    """Encode the record as JSON, with timestamps as numbers."""
    out = {
        "version": RESTORES_VERSION if release.restores else VERSION,
        "release": release.number,
        "source_id": release.source_id,
        "url": release.url,
        "low": release.low,
        "high": release.high,
        "prev_ts": release.prev_ts,
        "base_ts": release.base_ts,
        "keep_index": release.keep_index,
        "pieces": [
            {
                "ts": one.ts,
                "low": one.low,
                "high": one.high,
                "index": one.index,
                "watermark": one.watermark,
                "start_key": one.span.start.hex(),
                "end_key": one.span.end.hex(),
            }
            for one in release.files
        ],
        "metas": list(release.metas),
    }
    if release.restores:
        out["restores"] = list(release.restores)
        out["restored"] = [
            {"name": one.name, "from_ts": one.from_ts, "to_ts": one.to_ts, "ids": list(one.ids)}
            for one in release.restored
        ]
    return orjson.dumps(out)


def decode(key: str, data: bytes) -> Release:
    """Decode the record in the object `key`. Raises CorruptObject."""
    try:
        found = orjson.loads(data)
        if found["version"] not in (VERSION, RESTORES_VERSION):
            raise CorruptObject(key, f"release record version {found['version']!r}; this program knows 1 and 2")
        of_restores = found if found["version"] == RESTORES_VERSION else {"restores": (), "restored": ()}
        release = Release(
            _number(found["release"]),
            str(found["source_id"]),
            str(found["url"]),
            _number(found["low"]),
            _number(found["high"]),
            _number(found["prev_ts"]),
            None if found["base_ts"] is None else _number(found["base_ts"]),
            tuple(_piece(one) for one in found["pieces"]),
            tuple(map(str, found["metas"])),
            bool(found["keep_index"]),
            tuple(map(str, of_restores["restores"])),
            tuple(_restored(one) for one in of_restores["restored"]),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise CorruptObject(key, f"is not a release record: {error}") from error
    if problem := _problem(release):
        raise CorruptObject(key, f"is not a release record: {problem}")
    return release


def _piece(found: Any) -> ReleaseFile:
    start, end = bytes.fromhex(found["start_key"]), bytes.fromhex(found["end_key"])
    if end and start >= end:
        raise ValueError("a piece has an empty span")
    ts, low, high, index = (_number(found[name]) for name in ("ts", "low", "high", "index"))
    return ReleaseFile(ts, low, high, index, bool(found["watermark"]), KeySpan(start, end))


def _restored(found: Any) -> RestoredTables:
    ids = tuple(_number(one) for one in found["ids"])
    return RestoredTables(str(found["name"]), _number(found["from_ts"]), _number(found["to_ts"]), ids)


def _number(found: Any) -> int:
    if type(found) is not int or not 0 <= found <= MAX_TS:
        raise ValueError(f"{found!r} is not a timestamp or index")
    return found


def _problem(release: Release) -> str | None:
    """The reason why the release's files do not form a chain over (low, high]; None if they do."""
    if not release.files or release.low >= release.high:
        return "it has no window"
    if any(one.to_ts > release.high or one.name not in release.restores for one in release.restored):
        return "it marks a restore that ended above its window, or that it does not name"
    at, ts = release.low, release.prev_ts
    for one in release.files:
        if one.low != at or one.ts <= ts or not one.low < one.ts <= one.high:
            return f"piece {one.ts} does not follow {ts}"
        at, ts = (one.high if one.watermark else at), one.ts
    if at != release.high:
        return f"its pieces end at {at}, not at {release.high}"
    return None
