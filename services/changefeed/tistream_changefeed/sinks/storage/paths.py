"""The keys of objects below the root of a storage sink. Pure.

With TiCDC's layout data files are `{schema}/{table}/{version}/[{partition}/][{date}/]CDC{number}.{format}`, and
`meta/CDC.index` in a directory names the last one that readers may take. With a directory for each window, data files
are `tistream-windows/{window}/{schema}/…` with the same levels, and `manifest.json` in the directory of the window
names all of them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeVar

from tistream.arrays import Int64s

METADATA = "metadata"
LETTERS, WINDOWS = "tistream-dead-letters", "tistream-windows"
_OTHERS = frozenset(
    {METADATA, LETTERS, WINDOWS, ".tmp", "tistream-conditional-put"}
)  # names of other objects at the root
_NAME_BYTES = 255
DateSeparator = Literal["none", "year", "month", "day"]
_DATES = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d"}
_PHYSICAL_SHIFT = 18  # bits of a TSO below its milliseconds
_DAY_MS = 86_400_000
_SCHEMA = re.compile(r"schema_([0-9]+)_([0-9]{10})\.json")
_DATA = re.compile(r"CDC([0-9]{6,20})(\.[a-z]+)\n?")
Ts = TypeVar("Ts", int, Int64s)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the names of data files are formed. `suffix` is the ending of the names, such as `.csv`. `index_digits` is
    the least number of digits of a file's number. `partition_separator`: each partition of a table has a directory.
    `by_window`: each window has a directory."""

    suffix: str
    date_separator: DateSeparator = "day"
    partition_separator: bool = True
    index_digits: int = 20
    by_window: bool = False

    def directory(self, table_dir: str, partition: int | None, date: str) -> str:
        """The directory of data files. `table_dir` is `table_directory` of their table. `partition` is the physical id
        of the partition that the rows are in, None for a table without partitions. `date` is `dated` of the rows."""
        parts = [table_dir]
        if partition is not None and self.partition_separator:
            parts.append(str(partition))
        if date:
            parts.append(date)
        return "/".join(parts)

    def dated(self, commit_ts: int) -> str:
        """The directory level of the date of a commit, in UTC; empty if directories have no dates."""
        if self.date_separator == "none":
            return ""
        return datetime.fromtimestamp(day_of(commit_ts) * _DAY_MS / 1000, UTC).strftime(_DATES[self.date_separator])

    def data_key(self, directory: str, number: int) -> str:
        """The key of the data file with this number, which is at least 1."""
        return f"{directory}/{self.data_name(number)}"

    def data_name(self, number: int) -> str:
        """The name of the data file with this number, without its directory."""
        return f"CDC{number:0{self.index_digits}d}{self.suffix}"

    def index_content(self, number: int) -> bytes:
        """The content of the index file that names the data file with this number as the last one."""
        return f"{self.data_name(number)}\n".encode()

    def indexed(self, content: bytes) -> int | None:
        """The number of the data file that the content of an index file names; None if it names no data file of this
        layout."""
        found = _DATA.fullmatch(content.decode(errors="replace"))
        return int(found[1]) if found is not None and found[2] == self.suffix else None


def day_of(commit_ts: Ts) -> Ts:
    """The day of a commit, or of each of several, in UTC, counted from 1970."""
    return (commit_ts >> _PHYSICAL_SHIFT) // _DAY_MS


def table_directory(database: str, table: str, version: int) -> str:
    """The directory of the data files of one version of a table."""
    return f"{database}/{table}/{version}"


def window_directory(start_ts: int, generation: int, rows: int) -> str:
    """The directory of the window after a progress at the ts `start_ts`, up to which the feed of this generation has
    sent `rows` rows. No other window has the same three."""
    return f"{WINDOWS}/{start_ts:020d}-{generation}-{rows:015d}"


def manifest_key(window: str) -> str:
    """The key of the manifest of a window. `window` is its directory."""
    return f"{window}/manifest.json"


def letter_key(commit_ts: int, letter: bytes) -> str:
    """The key of the dead letter of an event. It follows from the letter, so a letter that is written again has the
    same key."""
    return f"{LETTERS}/{commit_ts}-{hashlib.sha256(letter).hexdigest()[:16]}.json"


def index_key(directory: str) -> str:
    """The key of the index file of a directory of data files."""
    return f"{directory}/meta/CDC.index"


def schema_prefix(database: str, table: str) -> str:
    """The prefix of the schema files of a table, or of a database if `table` is empty."""
    return f"{database}/{table}/meta/" if table else f"{database}/meta/"


def schema_key(database: str, table: str, version: int, checksum: int) -> str:
    """The key of a schema file."""
    return f"{schema_prefix(database, table)}schema_{version}_{checksum:010d}.json"


def schema_version(key: str) -> tuple[int, int] | None:
    """The version and the checksum of a schema file; None if the key is not that of a schema file."""
    found = _SCHEMA.fullmatch(key.rpartition("/")[2])
    return None if found is None else (int(found[1]), int(found[2]))


def name_problem(database: str, table: str) -> str | None:
    """Why the name of a table, or of a database if `table` is empty, cannot be a directory's; None if it can."""
    if database in _OTHERS:
        return "another object has this name"
    for name in filter(None, (database, table)):
        if "/" in name or "\0" in name:
            return "it has a slash or a NUL"
        if name in (".", ".."):
            return "it means another directory"
        if len(name.encode()) > _NAME_BYTES:
            return f"it is longer than {_NAME_BYTES} bytes"
    return None
