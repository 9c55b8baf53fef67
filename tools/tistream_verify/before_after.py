"""Checks that the old_row of each event equals the row of the key's previous event. CockroachDB's before-after
validator does the same with a database.

For each key, a 64-bit hash of its row is kept. If there are more than `keys_max` keys, half of them (selected by their
hashes) are dropped, again and again. So all events of the remaining keys are checked, in bounded memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tistream_verify.ddl_effect import RESHAPES_NOTHING, names_of
from tistream_verify.violation import Findings, Rule

_ABSENT = -1
_RESHAPED = -2  # the row exists, but a DDL has changed its columns since the last event
_DROPS = frozenset({"drop table", "drop schema", "truncate table"})


class BeforeAfterCheck:
    """Checks one consumer's events, in order."""

    def __init__(self, found: Findings, keys_max: int = 1_000_000) -> None:
        self._found = found
        self._keys_max = keys_max
        self._keys = 0
        self._mask = 0
        self._rows: dict[str, dict[int, int]] = defaultdict(dict)
        self._ids: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.compared = 0

    def row(self, event: Mapping[str, Any], key_text: bytes, come: int | None, gone: int | None) -> None:
        """Check a row event. `key_text` is its key as text; `come` and `gone` are the hashes of its row and its old_row
        (None: the event has none)."""
        table_id = event["table_id"]
        self._ids[(event["database"].lower(), event["table"].lower())].add(table_id)
        place = hash(key_text)
        if place & self._mask:
            return
        held = self._rows[table_id]
        shown = held.get(place)
        old = _ABSENT if gone is None else gone
        if shown is None:
            self._keys += 1
        else:
            self.compared += 1
            if old != shown and not (shown == _RESHAPED and old != _ABSENT):
                self._found.add(Rule.BEFORE_AFTER, _difference(shown, old), event)
        held[place] = _ABSENT if come is None else come
        if self._keys > self._keys_max:
            self._thin_out()

    def ddl(self, event: Mapping[str, Any]) -> None:
        """Take a DDL event into account: from here on the rows of its tables have other columns, or do not exist."""
        names = names_of(event)
        ids = {table_id for name in names for table_id in self._named(name)}
        for name in names:
            self._ids[name] |= ids  # after a rename, any table of the event may have any of its names
        if event["action"] in RESHAPES_NOTHING:
            return
        for table_id in ids:
            rows = self._rows[table_id]
            if event["action"] in _DROPS:
                self._keys -= len(rows)
                del self._rows[table_id]
                continue
            for place, shown in rows.items():
                if shown != _ABSENT:
                    rows[place] = _RESHAPED

    def _named(self, name: tuple[str, str]) -> set[str]:
        if name[1]:
            return self._ids[name]
        return {table_id for (database, _), ids in self._ids.items() if database == name[0] for table_id in ids}

    def _thin_out(self) -> None:
        while self._keys > self._keys_max:
            self._mask = self._mask << 1 | 1
            for table_id, rows in self._rows.items():
                self._rows[table_id] = {place: shown for place, shown in rows.items() if not place & self._mask}
            self._keys = sum(map(len, self._rows.values()))


def _difference(shown: int, old: int) -> str:
    if shown == _ABSENT:
        return "there is an old_row, but the row was deleted (or never existed)"
    if old == _ABSENT:
        return "there is no old_row, but the row existed"
    return "old_row differs from the row of the last event"
