"""The steps of DDL jobs as in TiDB (upstream-formats 5.2, 5.3 and 7), with the `m` keys that each step puts.

Each step is one transaction with its own schema version. A step describes what is stored, what readers see from then
on, and the job's state. work/ddl.py runs the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tistream.schema.tidb import actions
from tistream.schema.tidb.meta_key import encode_key
from tistream_upstream.schema import table_info
from tistream_upstream.schema.catalog import Catalog, Database, Table, dump
from tistream_upstream.schema.columns import KINDS
from tistream_upstream.schema.layout import (
    DELETE_ONLY,
    DELETE_REORG,
    NONE,
    PUBLIC,
    WRITE_ONLY,
    WRITE_REORG,
    Column,
    Layout,
)
from tistream_upstream.schema.schema_change import DdlText, TableShape

CREATE_SCHEMA, CREATE_TABLE, DROP_TABLE, ADD_COLUMN, DROP_COLUMN, TRUNCATE, RENAME = 1, 3, 4, 5, 6, 11, 14
Json = dict[str, Any]
_Put = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class DdlStep:
    """One step of a DDL job. `puts` makes the keys and values to store, given the start_ts; `enact` changes the catalog
    when the commit of the step is decided. `done`: the job ends with this step. `undone`: the step reverts the earlier
    steps, because the job was cancelled."""

    schema_state: int
    done: bool
    puts: Callable[[int], Sequence[tuple[bytes, bytes | None]]]
    shapes: tuple[TableShape, ...] = ()
    event: DdlText | None = None
    enact: Callable[[], None] | None = None
    info: Callable[[int], Json] | None = None  # TableInfo or DBInfo of the binlog, by start_ts of the last step
    undone: bool = False


@dataclass(frozen=True, slots=True)
class DdlPlan:
    """A DDL job, with the steps that it runs."""

    action: int
    schema_id: int
    table_id: int
    schema_name: str
    table_name: str
    query: str
    steps: tuple[DdlStep, ...]
    table: Table | None = None  # steps wait for its open transactions
    diff: Json = field(default_factory=dict)
    ids: tuple[int, ...] = ()


def table_key(database_id: int, table_id: int) -> bytes:
    """The key under which the TableInfo of a table is stored."""
    return encode_key(b"DB:%d" % database_id, b"Table:%d" % table_id)


def database_key(database_id: int) -> bytes:
    """The key under which the DBInfo of a database is stored."""
    return encode_key(b"DBs", b"DB:%d" % database_id)


def create_schema(catalog: Catalog) -> DdlPlan:
    """Plan CREATE DATABASE."""
    database = Database(catalog.new_id(), catalog.new_name("db"))
    info = table_info.database_info(database.id, database.name)
    query = f"CREATE DATABASE `{database.name}`"
    event = DdlText(database.name, "", query, CREATE_SCHEMA, ((database.name, ""),))

    def enact() -> None:
        catalog.databases[database.id] = database

    step = DdlStep(
        PUBLIC, True, lambda _: [(database_key(database.id), dump(info))], (), event, enact, info=lambda _: info
    )
    return DdlPlan(CREATE_SCHEMA, database.id, 0, database.name, "", query, (step,), ids=(database.id,))


def create_table(catalog: Catalog, database: Database, handle: str, columns: int, *, indexed: bool) -> DdlPlan:
    """Plan CREATE TABLE."""
    table = catalog.make_table(database.id, catalog.new_name("t"), handle, columns, indexed=indexed)
    parts = [f"`{c.name}` {c.kind.sql}{' NOT NULL' if c.not_null else ''}" for c in table.layout.columns]
    keys = [f"`{c.name}`" for c in table.layout.columns if c.primary]
    primary = f", PRIMARY KEY ({', '.join(keys)}) CLUSTERED" if keys else ""
    query = f"CREATE TABLE `{database.name}`.`{table.name}` ({', '.join(parts)}{primary})"

    def stored(ts: int) -> Json:
        table.update_ts = ts
        return table.info()

    def enact() -> None:
        catalog.tables[table.id] = table

    step = DdlStep(
        PUBLIC,
        True,
        lambda ts: [(table_key(database.id, table.id), dump(stored(ts)))],
        (TableShape(table.id, database.name, table.name, table.layout),),
        _event(database, table.name, query, CREATE_TABLE),
        enact,
        info=lambda _: table.info(),
    )
    return DdlPlan(CREATE_TABLE, database.id, table.id, database.name, table.name, query, (step,))


def add_column(catalog: Catalog, table: Table) -> DdlPlan:
    """Plan ALTER TABLE … ADD COLUMN, with a default or NULL. The states of the column are delete-only, write-only,
    write-reorg and public."""
    database = catalog.databases[table.database_id]
    rng = catalog.rng
    kind = rng.choice(list(KINDS.values()))
    with_default = kind.default is not None and rng.random() < 0.7
    column = Column(table.next_column, catalog.new_name("a"), kind, not_null=with_default and rng.random() < 0.6)
    if with_default:
        column = replace(column, default=kind.encode(kind.default), default_text=kind.default_text)
    default = f" DEFAULT '{column.default_text}'" if with_default else ""
    query = (
        f"ALTER TABLE `{database.name}`.`{table.name}` ADD COLUMN `{column.name}` {kind.sql}"
        f"{' NOT NULL' if column.not_null else ''}{default}"
    )
    pools = {**table.layout.pools, column.id: kind.pool(rng, nullable=not column.not_null)}
    layouts = [
        Layout(table.id, table.handle, (*table.layout.columns, replace(column, state=state)), pools, table.layout.index)
        for state in (DELETE_ONLY, WRITE_ONLY, WRITE_REORG, PUBLIC)
    ]
    steps = _alter(table, database, layouts, _event(database, table.name, query, ADD_COLUMN), visible_at=3)
    return DdlPlan(ADD_COLUMN, database.id, table.id, database.name, table.name, query, steps, table)


def drop_column(catalog: Catalog, table: Table, column: Column) -> DdlPlan:
    """Plan ALTER TABLE … DROP COLUMN. The column is hidden at the first step, and is the last column from then on."""
    database = catalog.databases[table.database_id]
    query = f"ALTER TABLE `{database.name}`.`{table.name}` DROP COLUMN `{column.name}`"
    kept = tuple(one for one in table.layout.columns if one.id != column.id)
    old = table.layout
    layouts = [
        Layout(table.id, table.handle, (*kept, replace(column, state=state)), old.pools, old.index)
        for state in (WRITE_ONLY, DELETE_ONLY, DELETE_REORG)
    ]
    layouts.append(Layout(table.id, table.handle, kept, old.pools, old.index))
    steps = _alter(table, database, layouts, _event(database, table.name, query, DROP_COLUMN), visible_at=0)
    return DdlPlan(DROP_COLUMN, database.id, table.id, database.name, table.name, query, steps, table)


def rename_table(catalog: Catalog, table: Table, database: Database, *, cancelled: bool = False) -> DdlPlan:
    """Plan RENAME TABLE, perhaps into another database. The rename is visible at the first of two steps. If it is
    cancelled between them, the second step restores the name."""
    before, name = catalog.databases[table.database_id], catalog.new_name("r")
    own = table.name
    query = f"RENAME TABLE `{before.name}`.`{own}` TO `{database.name}`.`{name}`"
    names = (before.name, own), (database.name, name)
    layout = table.layout

    def move(ends_in: Database, ends_as: str, comes_from: Database) -> Callable[[int], list[_Put]]:
        def puts(_: int) -> list[_Put]:
            table.revision += 1
            gone: list[_Put] = [(table_key(comes_from.id, table.id), None)] if ends_in is not comes_from else []
            return [*gone, (table_key(ends_in.id, table.id), dump(table.info(name=ends_as)))]

        return puts

    def enact() -> None:
        table.database_id, table.name = database.id, name

    def undo() -> None:
        table.database_id, table.name = before.id, own

    shown = DdlText(database.name, name, query, RENAME, names)
    taken_back = DdlText(before.name, own, query, RENAME, names[::-1], undone=True)
    shape, own_shape = (TableShape(table.id, *of, layout) for of in names[::-1])
    first = DdlStep(PUBLIC, False, move(database, name, before), (shape,), shown, enact)
    back = DdlStep(PUBLIC, True, move(before, own, database), (own_shape,), taken_back, undo, undone=True)
    last = back if cancelled else DdlStep(PUBLIC, True, lambda _: [], info=lambda _: table.info())
    diff = {"old_schema_id": before.id}
    return DdlPlan(RENAME, database.id, table.id, before.name, own, query, (first, last), table, diff)


def truncate_table(catalog: Catalog, table: Table) -> DdlPlan:
    """Plan TRUNCATE TABLE. The name moves to a new, empty table id."""
    database = catalog.databases[table.database_id]
    query = f"TRUNCATE TABLE `{database.name}`.`{table.name}`"
    old = table.layout
    new_id = catalog.new_id()
    layout = Layout(new_id, old.handle, old.columns, old.pools, old.index)
    fresh = Table(
        new_id, database.id, table.name, layout, table.insert_share, table.spread,
        revision=table.revision + 1, update_ts=table.update_ts, next_column=table.next_column,
    )  # fmt: skip

    def enact() -> None:
        table.gone = True
        del catalog.tables[table.id]
        catalog.tables[new_id] = fresh

    step = DdlStep(
        PUBLIC,
        True,
        lambda _: [
            (table_key(database.id, table.id), None),
            (table_key(database.id, new_id), dump(fresh.info())),
        ],
        (
            TableShape(table.id, database.name, table.name, None),
            TableShape(new_id, database.name, table.name, layout),
        ),
        _event(database, table.name, query, TRUNCATE),
        enact,
        info=lambda _: fresh.info(),
    )
    diff = {"table_id": new_id, "old_table_id": table.id}
    return DdlPlan(
        TRUNCATE, database.id, table.id, database.name, table.name, query, (step,), table, diff, (table.id, new_id)
    )


def drop_table(catalog: Catalog, table: Table) -> DdlPlan:
    """Plan DROP TABLE. The table is hidden at the first step, and removed at the third."""
    database = catalog.databases[table.database_id]
    query = f"DROP TABLE `{database.name}`.`{table.name}`"

    def puts(state: int) -> Callable[[int], list[tuple[bytes, bytes | None]]]:
        def at(_: int) -> list[tuple[bytes, bytes | None]]:
            table.state = state
            table.revision += 1
            return [(table_key(database.id, table.id), None if state == NONE else dump(table.info()))]

        return at

    def enact() -> None:
        table.gone = True
        del catalog.tables[table.id]

    event = _event(database, table.name, query, DROP_TABLE)
    hidden = (TableShape(table.id, database.name, table.name, None),)
    steps = (
        DdlStep(WRITE_ONLY, False, puts(WRITE_ONLY), hidden, event, enact),
        DdlStep(DELETE_ONLY, False, puts(DELETE_ONLY)),
        DdlStep(NONE, True, puts(NONE), info=lambda _: table.info()),
    )
    return DdlPlan(DROP_TABLE, database.id, table.id, database.name, table.name, query, steps, table)


def _alter(
    table: Table, database: Database, layouts: Sequence[Layout], event: DdlText, *, visible_at: int
) -> tuple[DdlStep, ...]:
    """The steps of an ALTER TABLE: one for each of `layouts`, which is the table's layout after the step. The last step
    ends the job. Readers see the change from the step with the index `visible_at` on, which has the `event`."""
    steps = []
    for at, layout in enumerate(layouts):
        last = at == len(layouts) - 1
        state = layout.columns[-1].state if not last or event.action == ADD_COLUMN else NONE

        def puts(ts: int, layout: Layout = layout) -> list[tuple[bytes, bytes | None]]:
            table.revision += 1
            table.update_ts = ts
            return [(table_key(database.id, table.id), dump(_info_with(table, layout)))]

        def enact(layout: Layout = layout) -> None:
            table.layout = layout
            table.next_column = max(table.next_column, *(column.id + 1 for column in layout.columns))

        shape = TableShape(table.id, database.name, table.name, layout)
        shown = event if at == visible_at else None
        info = (lambda _: table.info()) if last else None
        steps.append(DdlStep(state, last, puts, (shape,), shown, enact, info))
    return tuple(steps)


def _info_with(table: Table, layout: Layout) -> Json:
    """Make the TableInfo with the layout that a step commits."""
    now, table.layout = table.layout, layout
    try:
        info = table.info()
    finally:
        table.layout = now
    info["max_col_id"] = max(info["max_col_id"], *(column.id for column in layout.columns))
    return info


def _event(database: Database, table: str, query: str, action: int) -> DdlText:
    assert action in actions.ACTIONS
    return DdlText(database.name, table, query, action, ((database.name, table),))
