"""Reads and writes the rows of `counters`, and inserts the rows that a new database begins with. Every function runs
inside a transaction of the repository."""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, select, update

from tistream_meta.database import tables

OWNER_ROW = 1  # the id of the only row of `owner`
_COUNTERS = tables.counters


def seed(connection: Connection, name: str, value: int) -> None:
    """Insert a counter, unless it exists."""
    if connection.execute(select(_COUNTERS).where(_COUNTERS.c.name == name)).one_or_none() is None:
        connection.execute(insert(_COUNTERS).values(name=name, value=value))


def read(connection: Connection, name: str) -> int:
    """The value of a counter."""
    return int(connection.execute(select(_COUNTERS.c.value).where(_COUNTERS.c.name == name)).scalar_one())


def raise_by(connection: Connection, name: str, by: int) -> None:
    """Add `by` to a counter."""
    connection.execute(update(_COUNTERS).where(_COUNTERS.c.name == name).values(value=_COUNTERS.c.value + by))


def raise_to(connection: Connection, name: str, least: int) -> None:
    """Set a counter to `least`, if its value is lower."""
    lower = (_COUNTERS.c.name == name) & (_COUNTERS.c.value < least)
    connection.execute(update(_COUNTERS).where(lower).values(value=least))


def next_version(connection: Connection) -> int:
    """Raise the version of the routes by one and return it."""
    raise_by(connection, tables.ROUTE_VERSION, 1)
    return read(connection, tables.ROUTE_VERSION)


def next_task_ids(connection: Connection, count: int) -> int:
    """Reserve `count` consecutive task ids that no task ever had. Returns the first of them."""
    raise_by(connection, tables.LAST_TASK_ID, count)
    return read(connection, tables.LAST_TASK_ID) - count + 1


def begin(connection: Connection) -> None:
    """Insert the owner row and the counters, unless they exist."""
    # A database from before the counter of starts existed has start numbers already.
    started = connection.execute(select(func.coalesce(func.max(tables.nodes.c.start_epoch), 0))).scalar_one()
    first = {tables.ROUTE_VERSION: 1, tables.LAST_TASK_ID: 0, tables.LAST_START: started, tables.TOKENS_VERSION: 1}
    first[tables.LAST_AUDIT] = 0
    for name, value in first.items():
        seed(connection, name, value)
    if connection.execute(select(tables.owner)).one_or_none() is None:
        connection.execute(insert(tables.owner).values(id=OWNER_ROW, node_id="", owner_rev=0, lease_until_ms=0, url=""))
