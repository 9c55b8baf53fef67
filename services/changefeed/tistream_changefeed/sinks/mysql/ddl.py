"""Builds the statements of a DDL for a MySQL, MariaDB or TiDB server. Pure.

A table is created from its definition in the schema history, so that it has the character sets and collations that the
upstream has by default; so is a column that is added. Drops, renames and truncations are built from the names, because
one statement of a user may be several jobs. Other statements are the user's words, without the clauses that only TiDB
has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from tistream.model.ts import physical_ms
from tistream.schema.tidb.create_table import Dialect, UnsupportedTable, collation, column_definition, table_statements
from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.visible import Name
from tistream_changefeed.sinks.mysql.payload import DdlMark

_NOT_SENT = frozenset(
    {
        *("set tiflash replica", "update tiflash replica status", "alter table placement"),
        *("alter table partition placement", "modify schema default placement", "create placement policy"),
        *("alter placement policy", "drop placement policy", "alter table attributes"),
        *("alter table partition attributes", "alter table statistics options", "modify auto id cache"),
        *("rebase auto_random ID", "rebase auto_increment ID", "shard row ID", "alter table cache"),
        *("alter table nocache", "create sequence", "alter sequence", "drop sequence", "create resource group"),
        *("alter resource group", "drop resource group", "lock table", "unlock table", "repair table"),
        *("alter table ttl", "alter table no_ttl", "add columnar index", "modify engine attribute", "alter table mode"),
        *("refresh meta", "modify schema read only", "alter table affinity", "alter soft delete info"),
        *("modify schema soft delete and active active", "alter check constraint", "flashback cluster", "none"),
    }
)
_REFUSED = {
    "exchange partition": "rows move between tables without events",
    "recover table": "rows come back without events",
    "flashback schema": "rows come back without events",
}
_QUICK = frozenset(
    {
        *("create schema", "create table", "create tables", "create view", "drop schema", "drop table", "drop view"),
        *("truncate table", "rename table", "rename tables", "drop partition", "truncate partition", "drop index"),
        "rename index",
    }
)
_UNDONE = "rollback of "
_CREATES = ("create table", "create tables")
_RENAMES = ("rename table", "rename tables")
_TOKEN = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`|/\*.*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL
)
_COLLATION = re.compile(r"\butf8mb4_0900_(?:ai_ci|bin)\b", re.IGNORECASE)
_CONSTRAINT = re.compile(r"\b(?:CHECK|REFERENCES|UNIQUE|KEY|CONSTRAINT)\b", re.IGNORECASE)
_ONLY_TIDB = re.compile(
    r"\b(?:AUTO_RANDOM(?:_BASE)?\b(?:\s*=\s*\d+|\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?"
    r"|(?:SHARD_ROW_ID_BITS|PRE_SPLIT_REGIONS|AUTO_ID_CACHE)\b\s*=?\s*\d+"
    r"|(?:NON)?CLUSTERED\b)",
    re.IGNORECASE,
)


class DdlRefused(ValueError):
    """A DDL that the server cannot have. The text names it and says why."""


def is_sent(action: str) -> bool:
    """Whether DDLs of this action must be executed on a MySQL server; others change only what TiDB stores."""
    return action.removeprefix(_UNDONE) not in _NOT_SENT


def is_quick(action: str) -> bool:
    """Whether a DDL of this action takes the same time for each size of its table, so that it may be tried often."""
    return action in _QUICK


def ddl_statements(mark: DdlMark, dialect: Dialect) -> tuple[str, ...]:
    """Build the statements that execute a DDL on a server of this dialect, in order. Raises DdlRefused if no statement
    can have its effect, or the server does not support the table."""
    event = mark.event
    if event.action.startswith(_UNDONE) or event.action in _REFUSED:
        reason = _REFUSED.get(event.action, "a DDL that was executed is undone, and no statement says how")
        raise DdlRefused(f"{event.action} is not supported: {reason}")
    try:
        return tuple(_statements(mark, dialect))
    except UnsupportedTable as error:
        raise DdlRefused(f"{event.action}: {error}") from error


def _statements(mark: DdlMark, dialect: Dialect) -> Iterator[str]:
    event = mark.event
    if event.action in _CREATES:
        for change in mark.changes:
            if change.after is not None and change.after.head.kind == "table":
                found = table_statements(change.after.stored.info(), change.after.name, dialect)
                yield found.create
                if found.foreign_keys is not None:
                    yield found.foreign_keys
    elif event.action in _RENAMES:
        pairs = [(one.before, one.after) for one in mark.changes if one.before is not None and one.after is not None]
        yield from _renamed([(old.name, new.name) for old, new in pairs if old.name != new.name])
    elif event.action in ("drop table", "drop view"):
        yield f"{event.action.upper()} {_quoted((event.database, event.table))}"
    elif event.action == "truncate table":
        yield f"TRUNCATE TABLE {_quoted((event.database, event.table))}"
    elif event.action == "drop schema":
        yield f"DROP DATABASE {quoted_name(event.database)}"
    else:
        yield _added(mark, dialect) or rewritten(event.query, dialect)


def _added(mark: DdlMark, dialect: Dialect) -> str | None:
    """The statement of a DDL that adds one column. It is built from the column's definition, because the literal of a
    TIMESTAMP's default is in the time zone of the user's session. None for other DDLs."""
    if (
        mark.event.action != "add column"
        or len(mark.changes) != 1
        or _CONSTRAINT.search(_TOKEN.sub("", mark.event.query))
    ):
        return None
    (change,) = mark.changes
    if change.before is None or change.after is None:
        return None
    known = {column.id for column in change.before.table.columns if column.public}
    shown = [column for column in change.after.table.columns if column.public and not column.hidden]
    new = [at for at, column in enumerate(shown) if column.id not in known]
    if len(new) != 1:
        return None
    place = f"AFTER {quoted_name(shown[new[0] - 1].name)}" if new[0] else "FIRST"
    definition = column_definition(change.after.stored.info(), shown[new[0]], dialect)
    return f"ALTER TABLE {_quoted(change.before.name)} ADD COLUMN {definition} {place}"


def _renamed(pairs: Sequence[tuple[Name, Name]]) -> Iterator[str]:
    """Yield the statements that rename tables; `pairs` has their (old name, new name). If a table gets the old name of
    another one, all get temporary names first, in the same statement. If the tables exchange all of their names, this
    is a statement of its own: otherwise the definitions before and after the statement could be equal, and after a
    crash the runner would not see that it was executed."""
    if not pairs:
        return
    old, new = zip(*pairs, strict=True)
    steps = [pairs]
    if set(old) & set(new):
        between = [(database, f"tistream_renamed_{number}") for number, (database, _) in enumerate(old)]
        first, second = list(zip(old, between, strict=True)), list(zip(between, new, strict=True))
        steps = [first, second] if set(old) == set(new) else [[*first, *second]]
    for step in steps:
        yield f"RENAME TABLE {', '.join(f'{_quoted(one)} TO {_quoted(other)}' for one, other in step)}"


def session_time(mark: DdlMark) -> str:
    """The value of the session variable `timestamp` while the DDL is executed, as text (Unix time). Existing rows get
    it in a new column whose default is CURRENT_TIMESTAMP, so it is the time that the upstream has used for them."""
    for change in mark.changes if mark.event.action != "create table" else ():
        known = (
            set() if change.before is None else {column.id for column in change.before.table.columns if column.public}
        )
        for column in () if change.after is None else change.after.stored.info().get("cols") or ():
            default, value = str(column.get("default") or ""), column.get("origin_default")
            if column["id"] not in known and default.upper().startswith("CURRENT_TIMESTAMP") and value:
                with suppress(ValueError):
                    return f"{datetime.fromisoformat(str(value)).replace(tzinfo=UTC).timestamp():.6f}"
    return str(physical_ms(mark.event.commit_ts) // 1000)


def looked_at(mark: DdlMark) -> tuple[Name, ...]:
    """The names whose definitions on the server show whether the DDL was executed: tables, or databases as (name, "").
    Empty if the DDL only changes rows, because it can be executed again."""
    event = mark.event
    if event.action in ("truncate table", "truncate partition"):
        return ()
    return tuple(dict.fromkeys(event.involved or ((event.database, event.table),)))


def rewritten(query: str, dialect: Dialect) -> str:
    """Rewrite a statement of the upstream for this dialect: remove clauses that only TiDB has, and use the server's
    names of collations. Texts, quoted names and comments stay as they are; a server without TiDB's features ignores its
    comments."""
    if dialect is Dialect.TIDB:
        return query
    out, at = [], 0
    for found in _TOKEN.finditer(query):
        out += [_without_tidb(query[at : found.start()], dialect), found[0]]
        at = found.end()
    return "".join([*out, _without_tidb(query[at:], dialect)])


def _without_tidb(text: str, dialect: Dialect) -> str:
    text = _ONLY_TIDB.sub("", text)
    return _COLLATION.sub(lambda found: collation(found[0].lower(), dialect), text)


def _quoted(name: Name) -> str:
    return ".".join(map(quoted_name, name))
