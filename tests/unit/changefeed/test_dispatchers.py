"""Topics and dispatchers: expressions, order, collisions, and where DDL and resolved messages go."""

from __future__ import annotations

import pytest

from support.feed_batches import golden_windows
from tistream.errors import InvalidRequest
from tistream.rules.table_rules import TableRules
from tistream.schema.ddl_event import DdlEvent
from tistream_changefeed.dispatch.dispatchers import Dispatcher, Dispatchers
from tistream_changefeed.dispatch.partition_rule import PartitionBy, PartitionRule
from tistream_changefeed.dispatch.topic import TopicExpression, collisions


@pytest.mark.parametrize(
    ("text", "database", "table", "topic"),
    [
        ("plain-topic_1.x", "d", "t", "plain-topic_1.x"),
        ("{schema}", "Shop", "t", "Shop"),
        ("a_{schema}_{table}.z", "d", "t", "a_d_t.z"),
        ("{Schema}.{TABLE}", "d", "t", "d.t"),
        ("{schema}_{table}", "你好", "a b", "___a_b"),
        ("{table}", "d", ".", "_"),
        ("{table}", "d", "..", "__"),
        ("{table}", "d", "x" * 300, "x" * 249),
        ("{schema}", "a{table}b", "t", "a_table_b"),
    ],
)
def test_an_expression_names_the_topic_of_a_table(text: str, database: str, table: str, topic: str) -> None:
    assert TopicExpression.parse(text).of(database, table) == topic


@pytest.mark.parametrize(
    "text", ["", "a b", "{table}{schema}", "{schema}{schema}", "{other}", "ä", ".", "..", "x" * 250]
)
def test_an_expression_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="topic"):
        TopicExpression.parse(text)


@pytest.mark.parametrize("text", ["t", "{schema}", "{table}"])
def test_avro_needs_schema_and_table(text: str) -> None:
    with pytest.raises(InvalidRequest, match="avro"):
        TopicExpression.parse(text, whole=True)
    TopicExpression.parse("{schema}{table}", whole=True)


def test_tables_that_share_a_topic_are_named() -> None:
    each, both = TopicExpression.parse("{schema}_{table}"), TopicExpression.parse("{schema}")
    names = [("a", "b_c"), ("a_b", "c"), ("a", "x"), ("ä", "x"), ("ö", "x")]
    assert collisions((name, each) for name in names) == {
        "a_b_c": [("a", "b_c"), ("a_b", "c")],
        "__x": [("ä", "x"), ("ö", "x")],
    }
    assert collisions((name, both) for name in names) == {}


def entry(matcher: list[str], topic: str, rule: str = "table") -> Dispatcher:
    return Dispatcher(TableRules.parse(matcher), TopicExpression.parse(topic), PartitionRule.named(rule))


DISPATCHERS = Dispatchers(
    (entry(["shop.o*", "!shop.old"], "orders", "ts"), entry(["shop.*"], "{schema}-{table}", "index-value")), "rest"
)


def test_the_first_dispatcher_that_matches_is_used() -> None:
    names = [("shop", "orders"), ("shop", "old"), ("shop", "x"), ("other", "orders")]
    assert [DISPATCHERS.topic(*name) for name in names] == ["orders", "shop-old", "shop-x", "rest"]
    assert [DISPATCHERS.rule(*name).by for name in names] == [
        PartitionBy.TS,
        PartitionBy.INDEX,
        PartitionBy.INDEX,
        PartitionBy.TABLE,
    ]
    assert DISPATCHERS.every(names) == [DISPATCHERS.of(*name) for name in names]


def ddl(action: str, table: str, *involved: tuple[str, str]) -> DdlEvent:
    return DdlEvent(1, 1, 1, "shop", table, "", action, 0, involved)


@pytest.mark.parametrize(
    ("event", "topics"),
    [
        (ddl("create table", "x", ("shop", "x")), ["shop-x"]),
        (ddl("add index", "x"), ["shop-x"]),
        (ddl("create schema", "", ("shop", "")), ["rest"]),
        (ddl("drop schema", "", ("shop", ""), ("shop", "x")), ["rest"]),
        (ddl("rename table", "y", ("shop", "x"), ("shop", "y")), ["shop-x"]),
        (ddl("rename tables", "y", ("shop", "x"), ("shop", "y")), ["shop-x", "shop-y"]),
        (ddl("drop table", "x", ("shop", "x"), ("shop", "o1"), ("shop", "o2")), ["shop-x", "orders"]),
    ],
)
def test_a_ddl_goes_to_the_topics_of_its_tables(event: DdlEvent, topics: list[str]) -> None:
    assert DISPATCHERS.ddl_topics(event) == topics


def test_a_recorded_rename_goes_to_the_topic_of_the_old_name() -> None:
    renames = [ddl.event for window in golden_windows() for ddl in window.ddls if ddl.event.action == "rename table"]
    assert [DISPATCHERS.ddl_topics(event) for event in renames] == [["shop-ddl1"], ["shop-ddl2"]]


def test_resolved_goes_to_every_topic_of_a_live_table_and_to_the_default_one() -> None:
    assert DISPATCHERS.resolved_topics([]) == ["rest"]
    assert DISPATCHERS.resolved_topics([("shop", "x"), ("shop", "o1"), ("shop", "o2"), ("q", "q")]) == [
        "rest",
        "shop-x",
        "orders",
    ]
