"""Order-independent fingerprints of events and rows, and the truth file that pulled events are compared with.

The upstream (or its simulator) and the consumer each sum 64-bit hashes, modulo 2^64, of events and of visible rows. If
sums, counts and names are equal at one ts, the consumer received every event exactly once. This follows CockroachDB's
fingerprint validator, with sums instead of a second database.

A truth line is one JSON object, cumulative over the events with snapshot_ts < commit_ts <= ts:

    {"ts":"N","ddls":n,"tables":{"<table_id>":{"database":d,"table":t,"events":n,"events_sum":"16 hex",
     "rows":n,"rows_sum":"16 hex","alive":true}}}

The first line may also have "run":{"cluster":c,"tenant":t,"seed":n,"snapshot_ts":"N"}, which identifies the tenant and
run. `rows` counts what SELECT shows at `ts`, in the schema of that ts. A table that was dropped (or the id of a table
before a TRUNCATE) has `alive` false, no rows and the sum 0, and keeps its name and its events. Lines are in ascending
order of ts. A line is written when no further commit at or below its ts is possible. The first line should be at
snapshot_ts.
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
    """A 64-bit hash of a row event (parsed JSON): of its timestamps, op, table id, key and images, but not of names.

    JSON values are compared as they are: 1 and 1.0 differ, as do "1" and 1. Raises KeyError if a member is missing.
    """
    what = [event["commit_ts"], event["start_ts"], event["op"], event["table_id"]]
    return _hash([*what, event["key"], event["row"], event["old_row"]])


def row_hash(key: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """A 64-bit hash of one visible row, given as `key` and `row` of a row event (parsed JSON)."""
    return _hash([key, row])


def _hash(value: list[Any]) -> int:
    text = orjson.dumps(value, option=_SORTED)
    return int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest(), "big")


@dataclass(slots=True)
class Sum:
    """The number of added hashes, and their sum modulo 2^64. Neither depends on the order of the hashes, and hashes can
    be removed again."""

    count: int = 0
    total: int = 0

    def add(self, value: int) -> None:
        """Add a hash to the sum."""
        self.count += 1
        self.total = (self.total + value) % MODULUS

    def remove(self, value: int) -> None:
        """Remove a hash from the sum."""
        self.count -= 1
        self.total = (self.total - value) % MODULUS

    @property
    def hex(self) -> str:
        """The sum in 16 hexadecimal digits, the form of truth lines."""
        return f"{self.total:016x}"


@dataclass(slots=True)
class TableSums:
    """Running sums of one table, identified by its logical id: of its events so far, and of the rows that SELECT
    shows. `alive` is false once the table is dropped."""

    database: str
    table: str
    events: Sum = field(default_factory=Sum)
    rows: Sum = field(default_factory=Sum)
    alive: bool = True

    def see(self, event: Mapping[str, Any]) -> None:
        """Count a row event of this table, and apply it to the sums of rows: `old_row` is removed, `row` is added."""
        self.events.add(event_hash(event))
        self.database, self.table = event["database"], event["table"]
        if event["old_row"] is not None:
            self.rows.remove(row_hash(event["key"], event["old_row"]))
        if event["row"] is not None:
            self.rows.add(row_hash(event["key"], event["row"]))

    def drop(self) -> None:
        """Mark the table as dropped (by DROP, or by TRUNCATE for this id)."""
        self.alive = False
        self.rows = Sum()

    def truth(self) -> TableTruth:
        """The current sums in the form of a truth line."""
        events, rows = self.events, self.rows
        return TableTruth(self.database, self.table, events.count, events.total, rows.count, rows.total, self.alive)


@dataclass(frozen=True, slots=True)
class TableTruth:
    """The values of one table in a truth line."""

    database: str
    table: str
    events: int
    events_sum: int
    rows: int
    rows_sum: int
    alive: bool = True


@dataclass(frozen=True, slots=True)
class TruthRun:
    """The tenant and the upstream's run that a truth file describes."""

    cluster: str
    tenant: str
    seed: int
    snapshot_ts: int

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> TruthRun:
        """Parse the member `run` of a line. Raises KeyError or ValueError if it is malformed."""
        return cls(str(body["cluster"]), str(body["tenant"]), int(body["seed"]), int(body["snapshot_ts"]))


@dataclass(frozen=True, slots=True)
class TruthLine:
    """The sums of the events that a consumer must have received up to `ts`, inclusive. `ddls`: the number of ddl
    events. `tables` has the sums of row events by logical table id. Only the first line has `run`."""

    ts: int
    ddls: int
    tables: Mapping[str, TableTruth]
    run: TruthRun | None = None

    def encode(self) -> bytes:
        """Encode as one line of JSON, with its newline."""
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
        """Parse one line of a truth file. Raises ValueError if it is malformed."""
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
            raise ValueError(f"malformed truth line ({error!r}): {line[:200]!r}") from error
