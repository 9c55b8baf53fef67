"""Decides which snapshots and files of a table are dropped. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_PHYSICAL_SHIFT = 18  # bits of a TSO below its milliseconds
_TAG = "ts_"
LOCATION, SWEPT = "tistream.location", "tistream.swept_ms"
"""Properties of a table: the place that is its own, and when that was last cleared of files without a snapshot."""
PROPERTIES = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "write.parquet.compression-codec": "zstd",
}
"""The properties of every table of a feed. The first one makes a commit of a worker that is late fail."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a table keeps: the newest `snapshots` snapshots, and the tagged snapshots of the last `hours` hours."""

    snapshots: int = 100
    hours: int = 24


def expired(snapshots: Sequence[tuple[int, int]], tags: Collection[int], keeping: Keeping) -> list[int]:
    """The ids of the snapshots that must expire. `snapshots`: (timestamp, id) of each. `tags`: the ids of the snapshots
    that a tag or a branch names; they do not expire."""
    others = sorted((one for one in snapshots if one[1] not in tags), reverse=True)
    return [number for _, number in others[max(0, keeping.snapshots - 1) :]]  # the new one is kept too


def hourly_tag(resolved_ts: int, tags: Iterable[str]) -> str | None:
    """The name of the tag for a commit, by the hour of its `resolved_ts`; None if `tags` has this hour already."""
    hours = {_hour(ts) for ts in map(_tagged_ts, tags) if ts is not None}
    return f"{_TAG}{resolved_ts}" if _hour(resolved_ts) not in hours else None


def old_tags(tags: Iterable[str], resolved_ts: int, keeping: Keeping) -> list[str]:
    """Those of `tags` that must be dropped: hourly tags that are older than `keeping` allows. Tags with other names are
    kept."""
    least = _hour(resolved_ts) - keeping.hours
    return [name for name in tags if (ts := _tagged_ts(name)) is not None and _hour(ts) < least]


def orphans(files: Mapping[str, int], named: Collection[str], now_ms: int) -> Iterator[str]:
    """The files that are deleted: no snapshot names them, and they are older than a day. `files`: the time of the last
    change of each, in Unix ms."""
    for path, changed_ms in files.items():
        if path not in named and changed_ms < now_ms - DAY_MS:
            yield path


def _hour(ts: int) -> int:
    return (ts >> _PHYSICAL_SHIFT) // _HOUR_MS


def _tagged_ts(name: str) -> int | None:
    digits = name.removeprefix(_TAG)
    return int(digits) if name.startswith(_TAG) and digits.isdecimal() else None
