"""The rows of `counters`: statements of the transactions that repository.py makes."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from tistream_meta.database import tables

_COUNTERS = tables.counters


def seed(connection: Connection, name: str, value: int) -> None:
    """Begin a counter that is not there yet."""
    if connection.execute(select(_COUNTERS).where(_COUNTERS.c.name == name)).one_or_none() is None:
        connection.execute(insert(_COUNTERS).values(name=name, value=value))


def read(connection: Connection, name: str) -> int:
    """Its value."""
    return int(connection.execute(select(_COUNTERS.c.value).where(_COUNTERS.c.name == name)).scalar_one())


def raise_by(connection: Connection, name: str, by: int) -> None:
    """Add to it."""
    connection.execute(update(_COUNTERS).where(_COUNTERS.c.name == name).values(value=_COUNTERS.c.value + by))


def raise_to(connection: Connection, name: str, least: int) -> None:
    """Bring it up to `least`, if it is lower."""
    lower = (_COUNTERS.c.name == name) & (_COUNTERS.c.value < least)
    connection.execute(update(_COUNTERS).where(lower).values(value=least))


def next_version(connection: Connection) -> int:
    """The routes change: their version from now on."""
    raise_by(connection, tables.ROUTE_VERSION, 1)
    return read(connection, tables.ROUTE_VERSION)


def next_task_ids(connection: Connection, count: int) -> int:
    """The first of `count` ids in a row that no task ever had."""
    raise_by(connection, tables.LAST_TASK_ID, count)
    return read(connection, tables.LAST_TASK_ID) - count + 1
