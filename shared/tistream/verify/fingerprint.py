"""Fingerprints that do not depend on the order of what they cover, and the truth that pulled events are held against.

The upstream (or its simulator) and the consumer each add up 64-bit hashes, modulo 2^64, of events and of visible rows.
Equal sums, counts and names at one ts mean that the same events came, each exactly once. After CockroachDB's
fingerprint validator, with sums instead of a second database.

A truth line is one JSON object, cumulative over the events with snapshot_ts < commit_ts <= ts:

    {"ts":"N","ddls":n,"tables":{"<table_id>":{"database":d,"table":t,"events":n,"events_sum":"16 hex",
     "rows":n,"rows_sum":"16 hex","alive":true}}}

The first line may also have "run":{"cluster":c,"tenant":t,"seed":n,"snapshot_ts":"N"}: whose truth it is.
`rows` is what SELECT shows at `ts`, in the shape that the table has then; a table that was dropped (or the id that a
table had before a TRUNCATE) has `alive` false, no rows and the sum 0, and keeps its name and its events. Lines come in
rising order of ts, each once no commit at or below its ts can still happen. The first line should be at snapshot_ts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

MODULUS = 1 << 64
_SORTED = orjson.OPT_SORT_KEYS
_HASH_BYTES = 8


def event_hash(event: Mapping[str, Any]) -> int:
    """64 bits of a row event as pulled (parsed JSON): what changed where and when, by numbers and values, not names.

    Values are taken as JSON gives them: 1 and 1.0 differ, as do "1" and 1. Raises KeyError if a member is missing.
    """
    what = [event["commit_ts"], event["start_ts"], event["op"], event["table_id"]]
    return _hash([*what, event["key"], event["row"], event["old_row"]])


def row_hash(key: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """64 bits of one row that SELECT shows, with the `key` and `row` of a row event (parsed JSON)."""
    return _hash([key, row])


def _hash(value: list[Any]) -> int:
    text = orjson.dumps(value, option=_SORTED)
    return int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest(), "big")


@dataclass(slots=True)
class Sum:
    """How many things and the sum of their hashes modulo 2^64; in no order, and what was added can be taken out."""

    count: int = 0
    total: int = 0

    def add(self, value: int) -> None:
        """One thing more."""
        self.count += 1
        self.total = (self.total + value) % MODULUS

    def remove(self, value: int) -> None:
        """One thing less."""
        self.count -= 1
        self.total = (self.total - value) % MODULUS

    @property
    def hex(self) -> str:
        """The total as truth lines have it: 16 hex digits."""
        return f"{self.total:016x}"


@dataclass(slots=True)
class TableSums:
    """Running sums of one table (by its logical id): events so far, rows as SELECT shows them."""

    database: str
    table: str
    events: Sum = field(default_factory=Sum)
    rows: Sum = field(default_factory=Sum)
    alive: bool = True

    def see(self, event: Mapping[str, Any]) -> None:
        """Count a row event of this table, and apply it to the rows: `old_row` goes, `row` comes."""
        self.events.add(event_hash(event))
        self.database, self.table = event["database"], event["table"]
        if event["old_row"] is not None:
            self.rows.remove(row_hash(event["key"], event["old_row"]))
        if event["row"] is not None:
            self.rows.add(row_hash(event["key"], event["row"]))

    def drop(self) -> None:
        """The table is no more (DROP, or TRUNCATE for this id)."""
        self.alive = False
        self.rows = Sum()

    def truth(self) -> TableTruth:
        """The sums as they are now."""
        events, rows = self.events, self.rows
        return TableTruth(self.database, self.table, events.count, events.total, rows.count, rows.total, self.alive)


@dataclass(frozen=True, slots=True)
class TableTruth:
    """What a truth line says of one table."""

    database: str
    table: str
    events: int
    events_sum: int
    rows: int
    rows_sum: int
    alive: bool = True


@dataclass(frozen=True, slots=True)
class TruthRun:
    """Whose truth it is: the tenant, and which run of it."""

    cluster: str
    tenant: str
    seed: int
    snapshot_ts: int

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> TruthRun:
        """Read the member `run` of a line. Raises KeyError or ValueError if it is none."""
        return cls(str(body["cluster"]), str(body["tenant"]), int(body["seed"]), int(body["snapshot_ts"]))


@dataclass(frozen=True, slots=True)
class TruthLine:
    """What must have been told up to `ts`, inclusively; `tables` by logical table id. `run`: of the first line."""

    ts: int
    ddls: int
    tables: Mapping[str, TableTruth]
    run: TruthRun | None = None

    def encode(self) -> bytes:
        """One line of JSON, with its newline."""
        tables = {
            table_id: {
                "database": table.database,
                "table": table.table,
                "events": table.events,
                "events_sum": f"{table.events_sum:016x}",
                "rows": table.rows,
                "rows_sum": f"{table.rows_sum:016x}",
                "alive": table.alive,
            }
            for table_id, table in self.tables.items()
        }
        line: dict[str, Any] = {"ts": str(self.ts), "ddls": self.ddls, "tables": tables}
        if self.run is not None:
            run = self.run
            names = {"cluster": run.cluster, "tenant": run.tenant}
            line["run"] = {**names, "seed": run.seed, "snapshot_ts": str(run.snapshot_ts)}
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def parse(cls, line: bytes | str) -> TruthLine:
        """Read one line. Raises ValueError if it is none."""
        try:
            body = orjson.loads(line)
            tables = {
                str(table_id): TableTruth(
                    str(table["database"]),
                    str(table["table"]),
                    int(table["events"]),
                    int(table["events_sum"], 16),
                    int(table["rows"]),
                    int(table["rows_sum"], 16),
                    bool(table["alive"]),
                )
                for table_id, table in body["tables"].items()
            }
            run = TruthRun.parse(body["run"]) if "run" in body else None
            return cls(int(body["ts"]), int(body["ddls"]), tables, run)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"no truth line ({error!r}): {line[:200]!r}") from error
