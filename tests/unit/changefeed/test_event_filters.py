"""Which events a feed leaves out: kinds, expressions before the split, statements, transactions, columns."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.effort import seeds
from support.feed_tables import Change, Key, batch, changes_of, column, version
from tistream.errors import InvalidRequest
from tistream.filters.expression import Expression
from tistream.rules.column_rules import ColumnRules
from tistream.rules.table_rules import TableRules
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb import table as t
from tistream.schema.tidb.actions import ACTIONS
from tistream.schema.visible import TableVersion
from tistream_changefeed.filters import event_kinds
from tistream_changefeed.filters.column_selector import ColumnSelector, selected
from tistream_changefeed.filters.event_filter import EventFilter, parse_sql
from tistream_changefeed.filters.event_kinds import ignores_ddl, parse_kinds
from tistream_changefeed.filters.feed_filter import FeedFilter
from tistream_changefeed.rows.split import by_unique_index, split
from tistream_changefeed.rows.window import EventWindow, PlacedDdl

NOT_NULL = t.FLAG_NOT_NULL
COLUMNS = [column("id", flag=NOT_NULL), column("a"), column("b")]
TABLE = version(COLUMNS, [Key("PRIMARY", ("id",), primary=True)])
KEYLESS = version(COLUMNS, name="keyless", table_id=101)
EVERYTHING = TableRules.parse(["*.*"])
Row = dict[str, Any]


def row(id_: int, a: int | None = 0, b: int | None = 0) -> Row:
    return {"id": id_, "a": a, "b": b}


def kept(one: EventFilter, *changes: Change, of: TableVersion = TABLE) -> list[tuple[Row | None, Row | None]]:
    """The (old, new) rows that remain."""
    done = FeedFilter(EVERYTHING, (one,)).window(EventWindow((batch(of, changes),), ()))
    return [(change.old, change.new) for _, change in changes_of(done)]  # type: ignore[misc]


INSERT, UPDATE, DELETE = Change(None, row(1)), Change(row(1), row(1, 5)), Change(row(1), None)


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["insert"], [UPDATE, DELETE]),
        (["Update"], [INSERT, DELETE]),
        (["delete"], [INSERT, UPDATE]),
        (["all dml"], []),
        (["all ddl", "create table"], [INSERT, UPDATE, DELETE]),
        (["insert", "delete"], [UPDATE]),
    ],
)
def test_kinds_of_rows_are_ignored(names: list[str], left: list[Change]) -> None:
    found = kept(EventFilter(EVERYTHING, parse_kinds(names)), INSERT, UPDATE, DELETE)
    assert found == [(one.old, one.new) for one in left]


def test_ignored_deletes_keep_the_delete_half_of_a_key_update() -> None:
    one = FeedFilter(EVERYTHING, (EventFilter(EVERYTHING, parse_kinds(["delete"])),))
    window = one.window(EventWindow((batch(TABLE, [Change(row(1), row(2)), Change(row(3), None, key=b"l")]),), ()))
    sent = [(change.old, change.new) for _, change in changes_of(split(window, by_unique_index))]
    assert sent == [(row(1), None), (None, row(2))]


def test_update_expressions_see_key_updates() -> None:
    one = EventFilter(EVERYTHING, update_new=Expression.parse("a = 5"))
    assert kept(one, Change(row(1), row(2, 5)), Change(row(1), row(2, 6))) == [(row(1), row(2, 6))]


def test_an_update_of_a_row_that_the_sink_never_had_is_an_insert() -> None:
    young = Expression.parse("a < 18")
    one = EventFilter(EVERYTHING, insert=young, update_new=young)
    assert kept(one, Change(row(1, 17), row(1, 19)), Change(row(1, 19), row(1, 20))) == [
        (None, row(1, 19)),
        (row(1, 19), row(1, 20)),
    ]
    only_inserts = EventFilter(EVERYTHING, insert=young)  # the row may have come by an update
    assert kept(only_inserts, Change(row(1, 17), row(1, 19))) == [(row(1, 17), row(1, 19))]


def test_null_does_not_leave_out() -> None:
    one = EventFilter(EVERYTHING, insert=Expression.parse("a > 1"), delete=Expression.parse("not a > 1"))
    assert kept(one, Change(None, row(1, None)), Change(row(1, None), None)) == [
        (None, row(1, None)),
        (row(1, None), None),
    ]


def test_updates_of_some_columns_only_are_left_out() -> None:
    one = EventFilter(EVERYTHING, only_columns=("B",))
    found = kept(one, Change(row(1), row(1, 0, 9)), Change(row(1), row(1, 1, 9)), Change(None, row(2)))
    assert found == [(row(1), row(1, 1, 9)), (None, row(2))]
    with pytest.raises(InvalidRequest, match="has no column 'nope'"):
        EventFilter(EVERYTHING, only_columns=("nope",)).check(TABLE.table)


def test_a_filter_concerns_the_tables_of_its_matcher_and_case_as_the_feed_has_it() -> None:
    ignored = parse_kinds(["all dml"])
    assert kept(EventFilter(TableRules.parse(["d.other"]), ignored), INSERT) == [(None, row(1))]
    assert kept(EventFilter(TableRules.parse(["D.T"]), ignored), INSERT) == []
    assert kept(EventFilter(TableRules.parse(["D.T"], case_sensitive=True), ignored), INSERT) == [(None, row(1))]


def test_a_column_that_is_gone_stops_the_table_by_name() -> None:
    one = EventFilter(EVERYTHING, insert=Expression.parse("gone = 1"))
    with pytest.raises(InvalidRequest, match="has no column 'gone'"):
        kept(one, INSERT)
    with pytest.raises(InvalidRequest, match="has no column 'gone'"):
        one.check(TABLE.table)


def test_tables_without_a_key_and_system_tables_are_left_out() -> None:
    assert not FeedFilter(EVERYTHING).includes(KEYLESS)
    assert FeedFilter(EVERYTHING, without_key=True).includes(KEYLESS)
    for name in ("mysql", "TiDB_cdc", "lightning_task_info", "sys"):
        assert not FeedFilter(EVERYTHING).includes_name((name, "t"))
    window = EventWindow((batch(KEYLESS, [INSERT]), batch(TABLE, [INSERT])), ())
    assert [one.version for one in FeedFilter(EVERYTHING).window(window).rows] == [TABLE]


def test_transactions_are_left_out_by_their_start_ts() -> None:
    one = FeedFilter(EVERYTHING, start_ts=frozenset({7}))
    changes = [Change(None, row(1), start_ts=7), Change(None, row(2), start_ts=8)]
    ddls = tuple(PlacedDdl(9, ddl("create table", start_ts=ts)) for ts in (7, 8))
    done = one.window(EventWindow((batch(TABLE, changes),), ddls))
    assert [change.new for _, change in changes_of(done)] == [row(2)]
    assert [one.event.start_ts for one in done.ddls] == [8]


# --- ddl -----------------------------------------------------------------------------------------------------------


def ddl(action: str, *names: tuple[str, str], query: str = "", start_ts: int = 1, table: str = "t") -> DdlEvent:
    return DdlEvent(1, start_ts, 1, "d", table, query, action, 0, names or (("d", table),))


def test_every_kind_of_ddl_is_an_action_of_tidb() -> None:
    known = {action for actions in event_kinds._ACTIONS.values() for action in actions}
    assert known <= set(ACTIONS.values())


@pytest.mark.parametrize(
    ("names", "event", "ignored"),
    [
        (["create table"], ddl("create table"), True),
        (["create table"], ddl("create tables"), True),
        (["create table"], ddl("drop table"), False),
        (["all ddl"], ddl("create schema", table=""), True),
        (["add index"], ddl("add index", query="create index i on t(a)"), True),
        (["create  INDEX"], ddl("add index", query="alter table t add index i(a)"), True),
        (["alter table"], ddl("add column"), True),
        (["alter table"], ddl("drop partition"), True),
        (["alter table"], ddl("add index", query="ALTER  TABLE t add index i(a)"), True),
        (["alter table"], ddl("add index", query="create index i on t(a)"), False),
        (["alter table"], ddl("rename table", query="alter table t rename to u"), False),
        (["alter table"], ddl("drop table"), False),
        (["add column"], ddl("rollback of add column"), True),
        (["all dml", "insert"], ddl("create table"), False),
    ],
)
def test_kinds_of_ddl_are_ignored(names: list[str], event: DdlEvent, ignored: bool) -> None:
    assert ignores_ddl(parse_kinds(names), event) is ignored
    assert FeedFilter(EVERYTHING, (EventFilter(EVERYTHING, parse_kinds(names)),)).sends(event) is not ignored


def test_an_unknown_kind_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidRequest, match=r"'alter tables' is not a kind of event: use .*truncate table"):
        parse_kinds(["insert", "alter tables"])


def test_statements_are_ignored_by_regular_expressions() -> None:
    one = FeedFilter(EVERYTHING, (EventFilter(EVERYTHING, sql=parse_sql(["(?i)^drop", "secret"])),))
    assert not one.sends(ddl("drop table", query="DROP TABLE t"))
    assert not one.sends(ddl("create table", query="create table t (secret int)"))
    assert one.sends(ddl("create table", query="create table dropped (a int)"))
    with pytest.raises(InvalidRequest, match="regular expression"):
        parse_sql(["("])
    with pytest.raises(InvalidRequest, match="at most 1024"):
        parse_sql(["a" * 2_000])


@pytest.mark.parametrize(
    ("rules", "event", "sent"),
    [
        (["d.t"], ddl("rename table", ("d", "t"), ("e", "u")), True),
        (["e.u"], ddl("rename table", ("d", "t"), ("e", "u")), True),
        (["d.x"], ddl("rename table", ("d", "t"), ("e", "u")), False),
        (["d.x"], ddl("create schema", ("d", ""), table=""), True),
        (["*.*", "!d.x"], ddl("drop schema", ("d", ""), table=""), True),
        (["*.*", "!d.*"], ddl("drop schema", ("d", ""), table=""), False),
        (["e.*"], ddl("create schema", ("d", ""), table=""), False),
    ],
)
def test_a_ddl_is_sent_if_the_rules_include_a_name_of_its_table(rules: list[str], event: DdlEvent, sent: bool) -> None:
    assert FeedFilter(TableRules.parse(rules)).sends(event) is sent


# --- columns -------------------------------------------------------------------------------------------------------


def test_selected_columns_are_sent_alone() -> None:
    selector = ColumnSelector(EVERYTHING, ColumnRules.parse(["*", "!a"]))
    sent = selected(batch(TABLE, [UPDATE]), selector.sent(TABLE.table))
    assert [one.name for one in sent.columns] == ["id", "b"]
    assert [one.name for one in sent.handle] == ["id"]
    assert changes_of(EventWindow((sent,), ()))[0][1].new == {"id": 1, "b": 0}


def test_a_key_must_be_selected() -> None:
    with pytest.raises(InvalidRequest, match="leave out 'id' of its key"):
        ColumnSelector(EVERYTHING, ColumnRules.parse(["a"])).sent(TABLE.table)
    with pytest.raises(InvalidRequest, match="leave no column"):
        ColumnSelector(EVERYTHING, ColumnRules.parse(["x"])).sent(KEYLESS.table)
    two = version(
        [column("id", flag=NOT_NULL), column("u", flag=NOT_NULL)],
        [Key("PRIMARY", ("id",), primary=True), Key("u", ("u",), id=2)],
    )
    assert [one.name for one in ColumnSelector(EVERYTHING, ColumnRules.parse(["u"])).sent(two.table)] == ["u"]
    assert [one.name for one in ColumnSelector(EVERYTHING, ColumnRules.parse(["a"])).sent(KEYLESS.table)] == ["a"]


# --- against a slow reference --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(20, 1_000))
def test_random_filters_keep_what_the_reference_keeps(seed: int) -> None:
    rng = random.Random(seed)

    def some() -> Row:
        return row(rng.randrange(3), rng.choice([None, 0, 1, 2]), rng.choice([None, 0, 1]))

    def condition() -> tuple[Expression | None, Any]:
        if rng.random() < 0.4:
            return None, lambda _: False
        limit = rng.randrange(3)
        return Expression.parse(f"a > {limit} or b = 0"), lambda of: (of["a"] or 0) > limit or of["b"] == 0

    (insert, is_insert), (old, is_old), (new, is_new), (delete, is_delete) = (condition() for _ in range(4))
    names = rng.sample(["insert", "update", "delete"], rng.choice([0, 0, 1]))
    one = EventFilter(EVERYTHING, parse_kinds(names), (), insert, old, new, delete)
    changes = [Change(*rng.choice([(None, some()), (some(), None), (some(), some())])) for _ in range(40)]
    expected: list[tuple[Row | None, Row | None]] = []
    for change in changes:
        before, after = change.old, change.new
        if before is None:
            out = "insert" in names or is_insert(after)
        elif after is None:
            out = "delete" in names or is_delete(before)
        else:
            out = "update" in names or is_old(before) or is_new(after)
            if insert is not None and new is not None and is_insert(before) and is_new(before):
                before = None
        if not out:
            expected.append((before, after))  # type: ignore[arg-type]
    assert kept(one, *changes) == expected
