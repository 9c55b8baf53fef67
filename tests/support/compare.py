"""Pulled events against a golden set's expectation: completely, and independently of how the platform decodes.

Every function answers with a list of differences in words, empty when there is none, so that one run shows what is
wrong and how often. Nothing is tolerated that design.md 5 does not allow.
"""

from __future__ import annotations

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from support import ddl_oracle
from support.golden import GoldenSet, committed_rows, expected, load
from support.sql_values import Malformed, from_json, from_text

Event = dict[str, Any]
Row = tuple[Any, ...]

ROW_FIELDS = [
    *("type", "op", "commit_ts", "start_ts", "database", "table", "table_id", "schema_version"),
    *("key", "row", "old_row"),
]
DDL_FIELDS = ["type", "commit_ts", "database", "table", "query", "action", "schema_version", "involved"]
ACTIONS = {
    1: "create schema",
    2: "drop schema",
    3: "create table",
    4: "drop table",
    5: "add column",
    6: "drop column",
    7: "add index",
    8: "drop index",
    11: "truncate table",
    12: "modify column",
    14: "rename table",
    15: "set default value",
    17: "modify table comment",
    19: "add partition",
    20: "drop partition",
    21: "create view",
    22: "modify table charset and collate",
    23: "truncate partition",
    24: "drop view",
    32: "add primary key",
    33: "drop primary key",
    34: "create sequence",
    42: "exchange partition",
    47: "rename tables",
    61: "alter table multi-schema change",
    64: "alter table reorganize partition",
    71: "alter table partition by",
    72: "alter table remove partitioning",
}


# --- rows ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Change:
    """What one commit did to one table: multisets of canonical rows."""

    columns: list[str]
    types: list[str]
    removed: Counter[Row]
    added: Counter[Row]
    start_ts: str


Place = tuple[str, str, str]  # commit_ts, database, table


def expected_changes(golden: GoldenSet) -> dict[Place, Change]:
    """`expected/rows.jsonl`, canonical."""
    return _expected_changes(golden.name)


@functools.cache
def _expected_changes(name: str) -> dict[Place, Change]:
    shapes = expected(name, "columns")
    out: dict[Place, Change] = {}
    for commit in expected(name, "rows"):
        for table in commit["tables"]:
            columns = shapes[table["columns"]]["columns"]
            types = [column["type"] for column in columns]
            sides = [Counter(tuple(map(from_text, types, row)) for row in table[side]) for side in ("removed", "added")]
            place = (commit["commit_ts"], table["database"], table["table"])
            out[place] = Change([c["name"] for c in columns], types, sides[0], sides[1], commit["start_ts"])
    return out


def row_differences(golden: GoldenSet, events: Sequence[Event], *, above: int = 0) -> list[str]:
    """Rows, old rows, columns and their order, values: everything that SELECT said above this ts, and nothing else."""
    wanted = {place: change for place, change in expected_changes(golden).items() if int(place[0]) > above}
    found: dict[Place, Change] = {}
    problems: list[str] = []
    for event in events:
        if event["type"] != "row":
            continue
        place = (event["commit_ts"], event["database"], event["table"])
        try:
            _add(found, wanted, place, event)
        except (Malformed, KeyError, ValueError) as error:
            problems.append(f"{_name(event)}: {error}")
    for place in sorted(wanted.keys() | found.keys()):
        problems += _compare(place, wanted.get(place), found.get(place))
    return problems


def _add(found: dict[Place, Change], wanted: dict[Place, Change], place: Place, event: Event) -> None:
    shape = wanted.get(place)
    seen = found.get(place)
    if seen is None:
        columns = shape.columns if shape else list(event["row"] or event["old_row"])
        types = shape.types if shape else ["json"] * len(columns)
        seen = found[place] = Change(columns, types, Counter(), Counter(), event["start_ts"])
    for row, side in ((event["old_row"], seen.removed), (event["row"], seen.added)):
        if row is None:
            continue
        if list(row) != seen.columns:
            raise Malformed(f"columns {list(row)}, expected {seen.columns}")
        side[tuple(map(from_json, seen.types, row.values()))] += 1


def _compare(place: Place, wanted: Change | None, found: Change | None) -> list[str]:
    nothing = Change([], [], Counter(), Counter(), "")
    want, have = wanted or nothing, found or nothing
    out = []
    kept = have.removed & have.added  # a row deleted and an equal one inserted: SELECT shows no difference
    if wanted and found and want.start_ts != have.start_ts:
        out.append(f"{place}: start_ts {have.start_ts}, expected {want.start_ts}")
    for side, rows, got in (
        ("removed", want.removed, have.removed - kept),
        ("added", want.added, have.added - kept),
    ):
        if rows != got:
            out.append(f"{place} {side}: missing {_few(rows - got)}, unexpected {_few(got - rows)}")
    return out


def _few(rows: Counter[Row]) -> str:
    return f"{sum(rows.values())} {list(rows)[:2]}"[:600]


def _name(event: Event) -> str:
    return f"{event['type']} at {event.get('commit_ts')} of {event.get('database')}.{event.get('table')}"


# --- form and order ------------------------------------------------------------------------------------------------


def form_differences(events: Sequence[Event]) -> list[str]:
    """Fields, their order and types, and what an `op` may hold."""
    out = []
    for event in events:
        wrong = _FORM[event["type"]](event)
        if wrong:
            out.append(f"{_name(event)}: {wrong}")
    return out


def _row_form(event: Event) -> str | None:
    if list(event) != ROW_FIELDS:
        return f"fields {list(event)}"
    row, old = event["row"], event["old_row"]
    if not all(isinstance(event[name], str) for name in ROW_FIELDS[1:8]):
        return "an id or ts is no string"
    if (event["op"], row is None, old is None) not in _OP_FORMS:
        return f"a {event['op']} with row {row} and old_row {old}"
    if row == old:
        return "a put of what was there"
    return _key_form(event["key"], row, old)


_OP_FORMS = {("put", False, True), ("put", False, False), ("delete", True, False)}


def _key_form(key: dict[str, Any], row: dict[str, Any] | None, old: dict[str, Any] | None) -> str | None:
    if list(key) != ["_tidb_rowid"]:
        shown = row if row is not None else old
        if not key or any(shown.get(name) != value for name, value in key.items()):
            return f"key {key} is not of the row"
        if old is not None and row is not None and any(old[name] != value for name, value in key.items()):
            return f"key {key} changed inside one event"
    return None


def _ddl_form(event: Event) -> str | None:
    if list(event) != DDL_FIELDS:
        return f"fields {list(event)}"
    if not all(isinstance(event[name], str) for name in DDL_FIELDS[:-1]):
        return "a field is no string"
    if any(list(pair) != ["database", "table"] for pair in event["involved"]):
        return f"involved {event['involved']}"
    return None


def _resolved_form(event: Event) -> str | None:
    return None if list(event) == ["type", "resolved_ts", "cursor"] else f"fields {list(event)}"


def _continue_form(event: Event) -> str | None:
    return None if list(event) == ["type", "cursor"] else f"fields {list(event)}"


_FORM = {"row": _row_form, "ddl": _ddl_form, "resolved": _resolved_form, "continue": _continue_form}


def order_differences(events: Sequence[Event]) -> list[str]:
    """commit_ts order; rows before a DDL of the same ts; deletes before puts per transaction and table; resolved
    below everything that follows; nothing twice."""
    out: list[str] = []
    last, resolved, ddl_at = 0, 0, 0
    puts: set[tuple[str, str]] = set()
    seen: set[tuple[str, ...]] = set()
    for event in events:
        if event["type"] == "continue":
            continue
        if event["type"] == "resolved":
            ts = int(event["resolved_ts"])
            if ts < resolved or ts < last:
                out.append(f"resolved {ts} after resolved {resolved} and an event at {last}")
            resolved = max(resolved, ts)
            continue
        ts = int(event["commit_ts"])
        if ts <= resolved:
            out.append(f"{_name(event)} comes after resolved {resolved}")
        if ts < last:
            out.append(f"{_name(event)} comes after {last}")
        if ts > last:
            puts.clear()
        last = max(last, ts)
        identity: tuple[str, ...]
        if event["type"] == "ddl":
            ddl_at = ts
            identity = ("ddl", event["commit_ts"], event["query"])
        else:
            if ts == ddl_at:
                out.append(f"{_name(event)} comes after the DDL of its ts")
            group = (event["start_ts"], event["table_id"])
            if event["op"] == "put":
                puts.add(group)
            elif group in puts:
                out.append(f"{_name(event)}: a delete after a put")
            identity = (*group, event["commit_ts"], event["op"], json.dumps(event["key"], sort_keys=True))
        if identity in seen:
            out.append(f"{_name(event)} twice: {identity}")
        seen.add(identity)
    return out


# --- DDL -----------------------------------------------------------------------------------------------------------


def expected_ddl(golden: GoldenSet) -> list[ddl_oracle.Position]:
    """Where every job's event stands (tests/support/ddl_oracle.py)."""
    return _expected_ddl(golden.name)


@functools.cache
def _expected_ddl(name: str) -> list[ddl_oracle.Position]:
    golden = load(name)
    rows = committed_rows(name)
    return ddl_oracle.positions(rows, golden.schema_snap.data)


def ddl_differences(golden: GoldenSet, events: Sequence[Event]) -> list[str]:
    """The set of finished jobs, each at its place, with its query, action, version and names."""
    found = [event for event in events if event["type"] == "ddl"]
    jobs = {job["job_id"]: job for job in golden.expected("ddl")}
    want = Counter(
        (str(p.commit_ts), p.query, ACTIONS[p.action_type], str(p.schema_version)) for p in expected_ddl(golden)
    )
    have = Counter((e["commit_ts"], e["query"], e["action"], e["schema_version"]) for e in found)
    out = [f"missing DDL {ddl}" for ddl in want - have] + [f"unexpected DDL {ddl}" for ddl in have - want]
    by_query = {(str(p.commit_ts), p.query): jobs[p.job_id] for p in expected_ddl(golden)}
    for event in found:
        job = by_query.get((event["commit_ts"], event["query"]))
        if job is None:
            continue
        pair = {"database": event["database"], "table": event["table"]}
        if pair not in event["involved"]:
            out.append(f"{_name(event)}: {pair} is not in involved {event['involved']}")
        old = {"database": job["database"], "table": job["table"]}
        if job["type"] in (14, 42, 47):  # TiDB's history has the old name, or one of two: ours is the one after it
            if job["type"] == 14 and len(event["involved"]) != 2:
                out.append(f"{_name(event)}: involved {event['involved']}")
            continue
        if pair != old:
            out.append(f"{_name(event)}: TiDB says {job['database']}.{job['table']}")
    return out


def announcement_differences(events: Sequence[Event]) -> list[str]:
    """No row has a name or a shape that no DDL announced: every change of a table's columns is preceded by one."""
    shape: dict[tuple[str, str], list[str]] = {}
    announced: dict[tuple[str, str], bool] = defaultdict(bool)
    out = []
    for event in events:
        if event["type"] == "ddl":
            for pair in event["involved"]:
                announced[pair["database"], pair["table"]] = True
        elif event["type"] == "row":
            name = (event["database"], event["table"])
            columns = list(event["row"] or event["old_row"])
            if shape.get(name) != columns and not announced[name]:
                out.append(f"{_name(event)}: columns {columns} were not announced")
            shape[name] = columns
            announced[name] = False
    return out


# --- everything ----------------------------------------------------------------------------------------------------


def tenant_differences(golden: GoldenSet, events: Sequence[Event]) -> list[str]:
    """One uninterrupted pull of the whole tenant against the golden set: complete."""
    return [
        *form_differences(events),
        *order_differences(events),
        *row_differences(golden, events),
        *ddl_differences(golden, events),
        *announcement_differences(events),
    ]


def content(events: Iterable[Event]) -> list[str]:
    """Rows and DDLs as text, in order: what two pulls of the same range must have in common."""
    return [json.dumps(event, ensure_ascii=False) for event in events if event["type"] in ("row", "ddl")]


def concerns(event: Event, database: str, table: str | None = None) -> bool:
    """Whether a pull of the database (or of its table) includes the event: names compare case-insensitively."""
    names = [(event["database"], event["table"])] if "database" in event else []
    if event["type"] == "ddl":
        names += [(pair["database"], pair["table"]) for pair in event["involved"]]
    return any(d.lower() == database.lower() and (table is None or t.lower() == table.lower()) for d, t in names)


def names(events: Iterable[Event]) -> tuple[set[str], set[tuple[str, str]]]:
    """Every database and every table ever named."""
    pairs: set[tuple[str, str]] = set()
    for event in events:
        if event["type"] in ("row", "ddl"):
            pairs.add((event["database"], event["table"]))
            pairs |= {(pair["database"], pair["table"]) for pair in event.get("involved", ())}
    return {database for database, _ in pairs if database}, {(d, t) for d, t in pairs if d and t}


def shown(problems: Sequence[str], limit: int = 12) -> str:
    """An assertion's message."""
    return "\n".join([f"{len(problems)} differences", *problems[:limit]])
