"""Splits a schema_snap into its tables while it is read, so that memory does not grow with its size. Pure.

The description of a table is a JSON object at bracket depth four (`{databases: [{tables: [{…`). This module cuts these
objects ("parts") out and returns them one by one. What remains is small: it has a numbered object in the place of each
part. The whole is valid JSON if the remainder and all the parts are. So this module does not parse JSON; it only
distinguishes brackets from strings.

A JSON parser needs about 70 bytes of memory for each `{},`, which has three bytes. So parts are limited both in bytes
and in values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import orjson

from tistream.errors import CorruptObject
from tistream.model.ts import MAX_TS

VERSION = 1

AT_ONCE = 256 << 10  # bytes per call of `feed`: the positions of brackets may need a hundred times as much memory
PART_BYTES_MAX = 32 << 20  # TiDB stores a table's description as one value, by default of at most 6 MiB
PART_VALUES_MAX = 2_000_000  # a table of 6 MiB whose LIST partitions have many values has 1,800,000
REST_BYTES_MAX = 16 << 20
PARTS_MAX = 400_000  # tables, and any other objects at that depth
REST_VALUES_MAX = 1_000_000  # about two values for each table, and 20 for each database

_DEPTH = 5  # open brackets inside a part
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _OPEN, _CLOSE = 1, 2, 3
_KINDS = np.zeros(256, np.uint8)
_KINDS[[ord('"')]] = _QUOTE
_KINDS[[ord("{"), ord("[")]] = _OPEN
_KINDS[[ord("}"), ord("]")]] = _CLOSE


def cut_up(
    key: str, pieces: Iterable[bytes], on_table: Callable[[Any], None], part_bytes_max: int = PART_BYTES_MAX
) -> tuple[int, list[Any]]:
    """Call `on_table` with each table's parsed description. Returns (snapshot_ts, databases). In `databases`, `{"":n}`
    replaces the n-th table, counted from 0. Raises CorruptObject with `key` and the reason, also if `on_table` raises
    ValueError."""
    cutter = Cutter(part_bytes_max)
    try:
        for piece in pieces:
            for at in range(0, len(piece), AT_ONCE):
                for part in cutter.feed(piece[at : at + AT_ONCE]):
                    on_table(orjson.loads(part))
        content = orjson.loads(cutter.end())
    except orjson.JSONDecodeError as error:
        raise CorruptObject(key, f"schema_snap is not valid JSON: {error}") from error
    except ValueError as error:
        raise CorruptObject(key, str(error)) from error
    if not isinstance(content, dict):
        raise CorruptObject(key, "schema_snap is not a JSON object")
    version = content.get("version")
    if version != VERSION or isinstance(version, bool):
        raise CorruptObject(key, f"schema_snap version {version!r}; this program knows {VERSION}")
    snapshot_ts = content.get("snapshot_ts")
    if not isinstance(snapshot_ts, int) or isinstance(snapshot_ts, bool) or not 0 < snapshot_ts <= MAX_TS:
        raise CorruptObject(key, f"schema_snap has the invalid snapshot_ts {repr(snapshot_ts)[:40]}")
    databases = content.get("databases")
    if not isinstance(databases, list):
        raise CorruptObject(key, "schema_snap's databases are malformed: it has no list of databases")
    return snapshot_ts, databases


class Cutter:
    """Cuts the descriptions of tables out of a schema_snap, whose bytes are given to `feed` in order. Each is a JSON
    object at bracket depth four, and is called a part. After the last call of `feed`, `end` returns the JSON around the
    parts, with {"":n} in the place of part n, counted from 0."""

    def __init__(self, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self._part_bytes_max = part_bytes_max
        self.rest = bytearray()
        self._part: bytearray | None = None
        self._count = 0
        self._in_list = False  # whether the bracket that opened depth 4 opens a list
        self._held = b""  # a backslash at the end of the fed bytes: the byte that it escapes follows
        self._in_string = False
        self._depth = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes. Yields the parts that end in them, in order. Raises ValueError if brackets do not match
        or a limit is exceeded."""
        data = self._held + data
        odd = (len(data) - len(data.rstrip(b"\\"))) % 2
        self._held = data[len(data) - odd :]
        data = data[: len(data) - odd]
        last = 0
        for place, opens, depth in self._edges(data):
            if opens and depth < _DEPTH:
                self._in_list = data[place] == ord("[")
            elif opens and self._in_list and data[place] == ord("{"):
                self._keep(data[last:place])
                self._part, last = bytearray(), place
            elif not opens and self._part is not None:
                self._keep(data[last : place + 1])
                yield checked(self._part, self._part_bytes_max, PART_VALUES_MAX)
                self._part, last = None, place + 1
                self._keep(b'{"":%d}' % self._count)
                self._count += 1
                if self._count > PARTS_MAX:
                    raise ValueError(f"schema_snap has more than {PARTS_MAX} tables; no more are read")
        self._keep(data[last:])

    def end(self) -> bytes:
        """The remainder, with a numbered object in the place of each part. Raises ValueError if it exceeds a limit."""
        self.rest += (self._part or b"") + self._held
        return checked(self.rest, REST_BYTES_MAX, REST_VALUES_MAX)

    def _keep(self, data: bytes) -> None:
        target, most = (self.rest, REST_BYTES_MAX) if self._part is None else (self._part, self._part_bytes_max)
        if len(target) + len(data) > most:
            raise ValueError(_too_large(self._part is None, most))
        target += data

    def _edges(self, data: bytes) -> list[tuple[int, bool, int]]:
        """Find the brackets where a part may begin or end. Returns (position, whether it opens, depth after it) for
        each bracket that opens or closes a part, or changes the depth to four. Raises ValueError for a closing bracket
        without an opening one."""
        plain = _ESCAPED.sub(b"..", data) if b"\\" in data else data
        kinds = _KINDS[np.frombuffer(plain, np.uint8)]
        places = np.flatnonzero(kinds)
        kinds = kinds[places]
        quotes = np.cumsum(kinds == _QUOTE) + self._in_string
        brackets = (kinds != _QUOTE) & (quotes % 2 == 0)
        places, opens = places[brackets], kinds[brackets] == _OPEN
        depths = self._depth + np.cumsum(np.where(opens, 1, -1))
        if quotes.size:
            self._in_string = bool(quotes[-1] % 2)
        if depths.size:
            self._depth = int(depths[-1])
            if depths.min() < 0:
                raise ValueError("schema_snap is not valid JSON: a closing bracket has no opening one")
        found = np.flatnonzero((depths == _DEPTH - 1) | (opens & (depths == _DEPTH)))
        return list(zip(places[found].tolist(), opens[found].tolist(), depths[found].tolist(), strict=True))


def checked(part: bytearray, bytes_max: int, values_max: int) -> bytes:
    """Convert a part to bytes. Raises ValueError if it has more bytes or values than allowed; the limits bound the
    memory that a parser needs for it."""
    values = part.count(b",") + part.count(b"{") + part.count(b"[")
    if len(part) > bytes_max or values > values_max:
        raise ValueError(
            f"schema_snap has a part of {len(part)} bytes and {values} values; no more than {bytes_max} and "
            f"{values_max} are read"
        )
    return bytes(part)


def _too_large(is_rest: bool, most: int) -> str:
    what = "beside its tables" if is_rest else "in one table"
    return f"schema_snap has more than {most} bytes {what}; no more are read"
