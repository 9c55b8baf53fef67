"""Pulls with a filter: the events of the whole pull that fulfil it, with and without statistics, and less work."""

from __future__ import annotations

import functools
import gc
import io
import random
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import golden
from support.effort import examples
from support.pull_world import World, committed, golden_world, world_of
from tistream.clock import ManualClock
from tistream.errors import InvalidRequest
from tistream.filters.event_choice import EventChoice
from tistream.model.ts import Window
from tistream.pool.segment_index import SegmentIndex
from tistream.read import cursor as cursors
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.scan import Budget
from tistream.read.source import TenantSource
from tistream.schema.visible import TableVersion
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.pull.answer import FILTERED_MS
from tistream_api.pull.filtered import NamedTables, Outside, check_choice

Line = dict[str, Any]


@functools.cache
def everything() -> World:
    return golden_world("everything", tasks=4)


@functools.cache
def busy() -> World:
    """Table shop.busy alone, in many small row groups."""
    rows, history = committed("everything")
    return world_of(golden.load("everything"), rows.filter(pl.col("table_id").is_in(ids())), history, tasks=4, ticks=30)


@functools.cache
def older() -> World:
    """`busy` with segments of an earlier version, whose footers state no bounds of keys and operations."""
    world, objects = busy(), MemoryObjectStore()
    indexes = []
    for index in world.indexes:
        segments = []
        for ref in index.segments:
            file, sink = pq.ParquetFile(io.BytesIO(world.objects.get(ref.key))), io.BytesIO()
            with pq.ParquetWriter(sink, file.schema_arrow, write_statistics=["commit_ts"]) as out:
                for group in range(file.num_row_groups):
                    out.write_table(file.read_row_group(group), row_group_size=ref.rows)
            body = sink.getvalue()
            objects.put(ref.key, body)
            segments.append(replace(ref, size=len(body), checksum=f"{zlib.crc32(body):08x}"))
        indexes.append(SegmentIndex())
        indexes[-1].update(tuple(segments))
    cache = GroupCache(objects, 64 << 20)
    source = TenantSource(threading.RLock(), lambda: world.history, lambda: indexes, cache, lambda: None)
    return replace(world, objects=objects, indexes=indexes, source=source)


def ids() -> list[int]:
    """The physical ids of shop.busy."""
    named = everything().source.tables_named(Scope(everything().tenant, "shop", "busy"), whole())
    return [one for table in named for one in table.physical_ids]


def whole() -> Window:
    return Window(everything().snapshot_ts, everything().end_ts)


def choice(
    *, tables: str | None = None, operations: str | None = None, columns: str | None = None, where: str | None = None
) -> EventChoice:
    found = EventChoice.parse(tables, operations, columns, where)
    assert found is not None
    return found


def pulled(world: World, *names: str, of: EventChoice | None = None, **how: Any) -> list[Line]:
    """The events of one pull without its last line."""
    lines = [
        orjson.loads(line)
        for line in world.pull(*names, start=Position(world.snapshot_ts), choice=of, **how).splitlines()
    ]
    assert lines[-1]["type"] == "resolved"
    assert lines[-1]["resolved_ts"] == str(world.end_ts)
    return lines[:-1]


@functools.cache
def every(*names: str) -> list[Line]:
    return pulled(everything(), *names)


def kept(lines: list[Line], true: Callable[[Line], bool | None], operations: set[str]) -> list[Line]:
    """The events that a filter selects, decided line by line."""

    def selects(line: Line) -> bool:
        if line["type"] == "ddl":
            return True
        images = [one for one in (line["row"], line["old_row"]) if one is not None]
        operation = "delete" if line["op"] == "delete" else "insert" if line["old_row"] is None else "update"
        return operation in operations and any(true(one) is True for one in images)

    return [line for line in lines if selects(line)]


Condition = tuple[str, Callable[[Line], bool | None]]


def random_condition(rng: random.Random, depth: int = 2) -> Condition:
    """A condition over columns of shop.busy, as SQL and in Python, where None is NULL."""
    if depth and rng.random() < 0.5:
        (one, true), (other, also) = random_condition(rng, depth - 1), random_condition(rng, depth - 1)
        match rng.choice(["and", "or", "not"]):
            case "and":
                return f"({one}) and ({other})", lambda row: _not(_either(_not(true(row)), _not(also(row))))
            case "or":
                return f"({one}) or ({other})", lambda row: _either(true(row), also(row))
        return f"not ({one})", lambda row: _not(true(row))
    name = rng.choice(["id", "id", "s"])
    if rng.random() < 0.1:
        return f"{name} is null", lambda row: row[name] is None
    value = rng.randrange(0, 1_100)
    how: dict[str, Callable[[int], bool]] = {
        "=": lambda found: found == value,
        "<>": lambda found: found != value,
        "<": lambda found: found < value,
        ">=": lambda found: found >= value,
    }
    sign, compare = rng.choice(list(how.items()))
    return f"{name} {sign} {value}", lambda row: None if row[name] is None else compare(int(row[name]))


def _not(one: bool | None) -> bool | None:
    return None if one is None else not one


def _either(one: bool | None, other: bool | None) -> bool | None:
    if one is True or other is True:
        return True
    return None if None in (one, other) else False


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_filtered_pull_has_the_events_that_fulfil_the_filter_with_and_without_statistics(seed: int) -> None:
    rng = random.Random(seed)
    where, true = random_condition(rng)
    operations = set(rng.sample(["insert", "update", "delete"], rng.randrange(1, 4)))
    of = choice(where=where, operations=",".join(operations))
    expected = kept(every("shop", "busy"), true, operations)
    for world in (busy(), older()):
        assert pulled(world, "shop", "busy", of=of) == expected, where


def test_pages_of_a_filtered_pull_join_to_the_whole() -> None:
    world, of = busy(), choice(where="s > 50", operations="update,delete")
    scope, at, found = Scope(world.tenant, "shop", "busy"), Position(world.snapshot_ts), []
    while at < Position(world.end_ts):
        *events, end = [
            orjson.loads(one) for one in world.pull("shop", "busy", start=at, limit=7, choice=of).splitlines()
        ]
        found += events
        at = cursors.decode(scope, end["cursor"])
    assert found == pulled(world, "shop", "busy", of=of)


@pytest.mark.parametrize("where", ["id = 3", "id in (3, 900)", "id between 10 and 20 and s > 0"])
def test_row_groups_whose_keys_exclude_the_condition_are_not_read(where: str) -> None:
    def reads(of: EventChoice) -> int:
        world = busy()
        cache = world.source._cache = GroupCache(world.objects, 64 << 20)
        pulled(world, "shop", "busy", of=of)
        return cache.misses

    assert 0 < reads(choice(where=where)) < reads(choice(where="s is not null")) / 2


def test_row_groups_of_other_tables_are_not_read() -> None:
    world = everything()
    reads = []
    for tables in ("shop.big", "*.*"):
        cache = world.source._cache = GroupCache(world.objects, 64 << 20)
        pulled(world, of=choice(tables=tables))
        reads.append(cache.misses)
    assert reads[0] < reads[1] / 3


def test_row_groups_of_deletes_are_not_read_for_inserts() -> None:
    rows, history = committed("everything")
    deletes = rows.filter(pl.col("table_id").is_in(ids()) & (pl.col("op") == 2))
    world = world_of(golden.load("everything"), deletes, history)
    pulled(world, "shop", "busy", of=choice(operations="insert,update"))
    assert world.source._cache.misses == 0
    assert len(pulled(world, "shop", "busy", of=choice(operations="delete"))) > 40


@pytest.mark.parametrize("tables", ["shop.orders", "shop.k_*,!shop.k_un*", "*.*,!shop.*", "shop.ddl2,shop.ddl1"])
def test_rules_choose_the_rows_and_the_schema_changes_of_tables(tables: str) -> None:
    of = choice(tables=tables)

    def chosen(line: Line) -> bool:
        if line["type"] == "row":
            return of.includes((line["database"], line["table"]))
        if not line["table"]:
            assert of.tables is not None
            return of.tables.matches_schema(line["database"])
        named = [(one["database"], one["table"]) for one in line["involved"] if one["table"]]
        return any(of.includes(name) for name in named or [(line["database"], line["table"])])

    assert pulled(everything(), of=of) == [line for line in every() if chosen(line)]


def test_columns_are_left_out_of_both_rows_and_never_of_the_key() -> None:
    def projected(row: Line | None) -> Line | None:
        return None if row is None else {name: value for name, value in row.items() if name in ("amount", "note")}

    expected = [
        {**line, "row": projected(line["row"]), "old_row": projected(line["old_row"])}
        if line["type"] == "row"
        else line
        for line in every("shop", "orders")
    ]
    assert pulled(everything(), "shop", "orders", of=choice(columns="amount,n*")) == expected
    # A condition may use a column that is not sent.
    some = choice(columns="amount,n*", where="customer is null or id > 5")
    assert pulled(everything(), "shop", "orders", of=some)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_arrow_and_parquet_have_the_chosen_columns_too(form: str) -> None:
    of, world = choice(columns="amount", where="id > 5"), everything()
    body = world.pull("shop", "orders", start=Position(world.snapshot_ts), form=form, events="rows", choice=of)
    if form == "arrow":
        table = pa.ipc.open_stream(io.BytesIO(body)).read_all()
        assert [field.name for field in table.schema.field("row").type] == ["amount"]
        expected = [line for line in pulled(world, "shop", "orders", of=of) if line["type"] == "row"]
        assert table.column("commit_ts").to_pylist() == [int(line["commit_ts"]) for line in expected]
    else:
        assert b"amount" in body
        assert b"customer" not in body


def in_small_chunks() -> World:
    """All tables, read a few rows at a time."""
    rows, history = committed("everything")
    return world_of(golden.load("everything"), rows, history, budget=Budget(rows=64, first_rows=64))


def test_a_stream_tells_its_position_while_the_filter_selects_nothing() -> None:
    world, clock = in_small_chunks(), _Hurrying()
    start, of = Position(world.snapshot_ts), choice(where="id < 0")
    pieces = filter(None, world.answer("shop", "busy", start=start, follow=True, events="rows", choice=of, clock=clock))
    positions = [int(orjson.loads(next(pieces))["resolved_ts"]) for _ in range(3)]
    assert positions == sorted(set(positions))
    assert positions[-1] < world.end_ts


def pages_in_a_hurry(*names: str, of: EventChoice) -> list[list[Line]]:
    """The lines of all pages, by a clock that lets the least silence end one. Each page advances."""
    clock, small = _Hurrying(), in_small_chunks()
    scope, at, pages = Scope(small.tenant, *names), Position(small.snapshot_ts), []
    while at < Position(small.end_ts):
        body = b"".join(small.answer(*names, start=at, events="rows", choice=of, clock=clock))
        pages.append([orjson.loads(line) for line in body.splitlines()])
        now = cursors.decode(scope, pages[-1][-1]["cursor"])
        assert now > at
        at = now
    return pages


def test_a_page_whose_filter_selects_nothing_for_long_ends_where_it_is() -> None:
    pages = pages_in_a_hurry("shop", "busy", of=choice(where="id < 0"))
    assert len(pages) > 1
    assert all(len(page) == 1 for page in pages)


def test_a_page_ends_after_a_silence_also_if_it_has_sent_an_event_before() -> None:
    first = next(line for line in every("shop", "busy") if line["type"] == "row")
    of = choice(where=f"id = {first['key']['id']} and s = {first['row']['s']}")
    page, *others = pages_in_a_hurry("shop", "busy", of=of)
    assert page[0]["key"] == first["key"]
    assert others


def test_a_page_may_end_inside_a_large_transaction_of_which_the_filter_selects_nothing() -> None:
    pages = pages_in_a_hurry("shop", "big", of=choice(where="id < 0"))
    assert "continue" in {page[-1]["type"] for page in pages}


class _Hurrying(ManualClock):
    """A clock that advances with each look."""

    def monotonic_ms(self) -> int:
        self.advance(FILTERED_MS)
        return super().monotonic_ms()


def test_rows_before_a_column_was_added_end_the_answer_and_the_next_one_is_refused() -> None:
    world, of = everything(), choice(where="c = 7")
    added = next(line for line in every("shop", "ddl1") if line["type"] == "ddl" and "add column c" in line["query"])
    first = next(line for line in every("shop", "ddl1") if line["type"] == "row")
    body = world.pull("shop", "ddl1", start=Position(world.snapshot_ts), choice=of)
    end = orjson.loads(body.splitlines()[-1])
    assert int(end["resolved_ts"]) == int(first["commit_ts"]) - 1
    scope = Scope(world.tenant, "shop", "ddl1")
    with pytest.raises(InvalidRequest, match=r"where: .*'ddl1' has no column 'c'") as refused:
        check_choice(of, world.source, scope, Window(int(end["resolved_ts"]), world.end_ts), begins=False)
    assert refused.value.extra == {"parameter": "where"}
    since = int(added["commit_ts"])
    check_choice(of, world.source, scope, Window(since, since), begins=False)
    later = [line for line in every("shop", "ddl1") if int(line["commit_ts"]) > since]
    *found, _ = [
        orjson.loads(line) for line in world.pull("shop", "ddl1", start=Position(since), choice=of).splitlines()
    ]
    assert found == kept(later, lambda row: row.get("c") == 7, {"insert", "update", "delete"})[: len(found)]
    assert len(found) > 3


def test_where_is_compared_with_a_table_that_is_created_after_the_beginning() -> None:
    world, window = everything(), Window(everything().snapshot_ts, everything().end_ts)
    scope = Scope(world.tenant, "shop", "orders")
    assert world.source.tables_at(window.low, scope) == []
    check_choice(choice(where="amount > 1"), world.source, scope, window, begins=True)
    wrong = choice(where="no_such = 1")
    for _ in range(2):
        check_choice(wrong, world.source, scope, window, begins=False)
        with pytest.raises(InvalidRequest, match="has no column 'no_such'"):
            check_choice(wrong, world.source, scope, window, begins=True)


def test_columns_of_tables_that_came_and_went_are_chosen() -> None:
    world, window = everything(), whole()
    scope = Scope(world.tenant)
    ends = {one.name for ts in (window.low, window.high) for version in world.source.tables_at(ts, scope)
            for one in version.table.visible_columns}  # fmt: skip
    gone = sorted({(version.database, one.name) for version in world.source.tables_within(window, scope)
                   for one in version.table.visible_columns if one.name not in ends})  # fmt: skip
    assert gone
    shown = 0
    for database, column in (gone[0], gone[-1]):
        for names in ((), (database,)):
            found = pulled(world, *names, of=choice(columns=f"id,{column}"))
            check_choice(choice(columns=column), world.source, Scope(world.tenant, *names), window, begins=True)
            rows = [line for line in found if line["type"] == "row"]
            wanted = [line for line in every(*names) if line["type"] == "row"]
            for side in ("row", "old_row"):
                assert [line[side] for line in rows] == [
                    line[side] and {name: line[side][name] for name in line[side] if name in ("id", column)}
                    for line in wanted
                ]
            shown += sum(column in (line["row"] or {}) for line in rows)
    assert shown
    with pytest.raises(InvalidRequest, match="no table of this call has a column"):
        check_choice(choice(columns=f"{gone[0][1]}_x"), world.source, scope, window, begins=True)


def test_columns_of_tables_that_do_not_exist_yet_are_not_refused() -> None:
    world = everything()
    scope, low = Scope(world.tenant), world.snapshot_ts
    assert world.source.tables_at(low, scope) == []
    check_choice(choice(columns="id"), world.source, scope, Window(low, low), begins=True)


@pytest.mark.parametrize(
    ("of", "names", "parameter", "reason"),
    [
        ({"tables": "shop.ordrs"}, (), "tables", r"shop.ordrs does not exist .*did you mean shop.orders"),
        ({"tables": "*.*,!shop.order"}, (), "tables", "shop.order does not exist"),
        ({"tables": "other.ddl3"}, ("shop",), "tables", "is not in database shop"),
        ({"columns": "id,amout"}, ("shop", "orders"), "columns", r"'amout' \(did you mean amount\?\)"),
        ({"where": "amout > 1"}, ("shop", "orders"), "where", r"no column 'amout' \(did you mean amount\?\)"),
        ({"where": "amount > 'x'"}, ("shop", "orders"), "where", "is not a number"),
        ({"where": "amount > 1"}, ("shop",), "where", "has no column 'amount'.*leave out the tables"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused_by_name(of: Any, names: Any, parameter: str, reason: str) -> None:
    world = everything()
    at = next(int(line["commit_ts"]) for line in every() if line["type"] == "row" and line["table"] == "orders")
    with pytest.raises(InvalidRequest, match=reason) as refused:
        check_choice(choice(**of), world.source, Scope(world.tenant, *names), Window(at, world.end_ts), begins=True)
    assert refused.value.extra["parameter"] == parameter


@pytest.mark.parametrize(
    ("of", "parameter", "reason"),
    [
        (
            {"operations": "inserts"},
            "operations",
            r"'inserts' is not an operation \(did you mean insert\?\): use insert",
        ),
        ({"operations": "insert,"}, "operations", "'' is not an operation"),
        ({"tables": "orders"}, "tables", "a dot must stand"),
        ({"tables": " , "}, "tables", "has no rule"),
        ({"columns": " "}, "columns", "has no rule"),
        ({"columns": "a b"}, "columns", "must be escaped"),
        ({"where": "id >"}, "where", "cannot be parsed"),
        ({"where": "sleep(5)"}, "where", "is not supported"),
    ],
)
def test_a_malformed_filter_is_refused_by_the_name_of_its_parameter(of: Any, parameter: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{parameter}: .*{reason}") as refused:
        choice(**of)
    assert refused.value.extra == {"parameter": parameter}


def only(table: str) -> World:
    """One table of `everything`, alone in its row groups."""
    rows, history = committed("everything")
    named = everything().source.tables_named(Scope(everything().tenant, "shop", table), whole())
    mine = rows.filter(pl.col("table_id").is_in([one for found in named for one in found.physical_ids]))
    return world_of(golden.load("everything"), mine, history)


def test_rows_that_a_condition_does_not_fit_end_the_answer_also_if_their_keys_are_excluded() -> None:
    world = only("ddl1")
    first = next(line for line in every("shop", "ddl1") if line["type"] == "row")
    body = world.pull("shop", "ddl1", start=Position(world.snapshot_ts), choice=choice(where="id < -9 and c = 7"))
    assert int(orjson.loads(body.splitlines()[-1])["resolved_ts"]) == int(first["commit_ts"]) - 1


def test_shared_results_do_not_keep_what_a_filter_knows_of_tables() -> None:
    world = busy()
    assert pulled(world, "shop", "busy", of=choice(where="id < 700"))
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Outside)]


class Walked(TenantSource):
    """A source that counts how often all tables of a scope were looked up."""

    walks = 0

    def tables_at(self, ts: int, scope: Scope) -> list[TableVersion]:
        self.walks += 1
        return super().tables_at(ts, scope)


def walked(lock: Any) -> Walked:
    world = everything()
    cache = GroupCache(world.objects, 64 << 20)
    return Walked(lock, lambda: world.history, lambda: world.indexes, cache, lambda: None)


@pytest.mark.parametrize(("of", "walks"), [({"columns": "id"}, 0), ({"tables": "*.*"}, 0), ({"where": "1 = 1"}, 1)])
def test_pages_by_cursor_look_at_all_tables_at_most_once(of: Any, walks: int) -> None:
    source, some, end_ts = walked(threading.RLock()), choice(**of), everything().end_ts
    for back in range(3):
        check_choice(some, source, Scope(everything().tenant), Window(end_ts - back, end_ts - back), begins=False)
    assert source.walks == walks


@dataclass(frozen=True)
class Unlocked:
    """A choice of tables by rules that checks that the tenant's lock is free meanwhile."""

    lock: Any
    asked: list[int] = field(default_factory=list, compare=False)

    def chosen(self, versions: Sequence[TableVersion]) -> Sequence[bool]:
        assert self.lock.acquire(blocking=False)
        self.lock.release()
        self.asked.append(len(versions))
        return [one.head.id % 2 == 0 for one in versions]


def test_rules_are_compared_with_the_names_of_all_tables_once_and_without_the_lock_of_the_tenant() -> None:
    lock, end_ts = threading.Lock(), everything().end_ts
    rules, source = Unlocked(lock), walked(lock)
    scope = ChosenScope(everything().tenant, None, None, rules)
    first, second = (source.physical_ids(scope, Window(end_ts - back, end_ts)) for back in (1, 0))
    assert first is not None
    assert second is not None
    assert first.tolist() == second.tolist()
    assert len(rules.asked) == 1


def test_a_database_that_is_the_only_one_is_not_held_by_rows_of_unnamed_tables() -> None:
    world = only("busy")
    databases = world.source.databases(world.end_ts)
    every_table = NamedTables(choice(tables="*.*"), None)
    scope = ChosenScope(world.tenant, databases[0], None, every_table)
    assert world.source.physical_ids(scope, whole()) is not None
