"""The plan of a feed: tables, topics, partitions, warnings; and what is refused at creation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from support.feed_batches import golden_windows
from support.feed_tables import Key, column, version
from tistream.errors import InvalidRequest
from tistream.schema.tidb import table as t
from tistream.schema.visible import TableVersion
from tistream.wire.bulk.changefeeds import (
    ChangefeedInfo,
    CheckChangefeed,
    CreateChangefeed,
    CreatedChangefeed,
    FeedTables,
)
from tistream_api.feeds.feed_body import created
from tistream_changefeed.config.parse import parse_feed, read_toml
from tistream_changefeed.config.plan import FeedPlan, PlannedTable, plan
from tistream_changefeed.feed_checks import FeedChecks
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.sinks.feeds import feed_of
from tistream_cli.changefeed.changefeed import FeedOf, show_feed
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.wire import Server
from tistream_client.core.steps import Answer

ID = column("id", flag=t.FLAG_NOT_NULL)
PRIMARY = Key("PRIMARY", ("id",), primary=True)
ORDERS = version([ID, column("a"), column("note", t.VARCHAR)], [PRIMARY], database="shop", name="orders")
USERS = version([ID], [PRIMARY], database="shop", name="users", table_id=101)
LOG = version([column("a")], database="shop", name="log", table_id=102)
OTHER = version([ID], [PRIMARY], database="other", name="t", table_id=103)
NO_TABLES = "the rules include no table that exists now"
TABLES = [USERS, ORDERS, LOG, OTHER]


def planned(text: str, tables: Sequence[TableVersion] = TABLES, existing: Mapping[str, int] | None = None) -> FeedPlan:
    return plan(parse_feed("kafka://h:1/events", read_toml(text)).config, tables, existing)


def test_a_plan_names_tables_topics_partitions_and_columns() -> None:
    found = planned(
        """
        [filter]
        rules = ["shop.*", "!shop.log"]
        [sink]
        dispatchers = [{matcher = ["shop.orders"], topic = "{schema}.{table}", partition = "index-value"}]
        column-selectors = [{matcher = ["shop.orders"], columns = ["*", "!note"]}]
        """,
        existing={"events": 7, "shop.orders": 2},
    )
    assert found.tables == (
        PlannedTable("shop", "orders", "shop.orders", "index-value", ("id", "a")),
        PlannedTable("shop", "users", "events", "table", ("id",)),
    )
    assert found.topics == {"events": 7, "shop.orders": 2}
    assert found.warnings == ()


def test_answers_name_tables_that_are_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = FeedChecks(Allowed(()), SecretKeys(None), lambda _: TABLES)
    wanted = CreateChangefeed(changefeed_id="lake", sink_uri="file:///data?protocol=csv")
    answer = checks.plan(CheckChangefeed(cluster_id="7", tenant_id="acme", wanted=wanted, look=False))
    (log,) = answer.left_out
    assert (log.database, log.table) == ("shop", "log")
    assert log.reason == "it has no primary key and no unique key that is NOT NULL"
    made = ChangefeedInfo(
        changefeed_id="lake",
        state="running",
        sink_uri=answer.sink_uri,
        config={},
        start_ts="1",
        end_ts=None,
        created_ms="1",
        checkpoint_ts="1",
    )
    told = CreatedChangefeed.model_validate_json(created(made.model_dump_json().encode(), answer))
    assert (told.state, told.warnings, told.left_out) == ("running", answer.warnings, [log])
    assert "are not sent: shop.log" in told.warnings[0]
    tables = FeedTables(tables=[], count=0, warnings=[], left_out=answer.left_out)
    answers = {"/changefeeds/lake": made.model_dump_json(), "/changefeeds/lake/tables": tables.model_dump_json()}

    def ask(_: Server, method: str, path: str, headers: Mapping[str, str], body: object) -> Answer:
        return Answer(200, {}, answers[path.removeprefix("/v1/clusters/7/tenants/acme")].encode())

    monkeypatch.setattr(Server, "ask", ask)
    show_feed(ApiClient("http://127.0.0.1:1"), FeedOf("7", "acme", "lake"), as_json=False)
    head, *_, last = capsys.readouterr().out.splitlines()
    assert (head, last) == ("lake  running", f"left out shop.log: {log.reason}")


def test_several_shards_say_what_they_cost() -> None:
    text = "[tistream]\nshards = 5\n"
    found = planned(text, [ORDERS])
    assert found.warnings == ("tistream.shards = 5: the 3 partitions of a topic keep at most that many busy",)
    assert planned("[tistream]\nshards = 3\n", [ORDERS]).warnings == ()


def test_partitions_are_those_of_the_topic_or_of_the_setting() -> None:
    setting = "[sink.kafka-config]\npartition-num = 5\n"
    assert planned("").topics == {"events": 3}
    assert planned(setting).topics == {"events": 5}
    assert planned(setting, existing={"events": 16}).topics == {"events": 5}
    with pytest.raises(InvalidRequest, match="'events' has 4 partitions, and partition-num is 5"):
        planned(setting, existing={"events": 4})
    with pytest.raises(InvalidRequest, match="'events' does not exist, and auto-create-topic is false"):
        planned("[sink.kafka-config]\nauto-create-topic = false", existing={})


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[filter]\nrules = ['shop.*', 'shpo.*']", "rule 'shpo.*' matches no table that exists now"),
        ("", "are not sent: shop.log; add a key, or set force-replicate"),
        ("force-replicate = true", "have no key in messages: shop.log"),
        ("[filter]\nrules = ['nope.*']\n[tistream]\nallow-no-tables = true", "the rules include no table that exists"),
        ("[sink]\ndispatchers = [{matcher = ['x.y']}]", "sink.dispatchers[1] is the dispatcher of no table"),
        ("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'random'}]", "'random' is unknown: as in TiCDC"),
        ("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'ts'}, {matcher = ['*.*']}]", "sink.dispatchers[2]"),
    ],
)
def test_a_plan_warns_of_what_is_likely_a_mistake(text: str, warning: str) -> None:
    assert any(warning in one for one in planned(text).warnings), planned(text).warnings


@pytest.mark.parametrize(
    "uri",
    [
        "kafka://h:1/events?protocol=canal-json",
        "mysql://u@h:3306/",
        "file:///data?protocol=csv",
        "iceberg://lake?catalog-uri=sqlite:////c.db&warehouse=file:///lake",
        "iceberg://lake?catalog-uri=sqlite:////c.db&warehouse=file:///lake&mode=both",
    ],
)
def test_every_sink_names_the_tables_that_it_leaves_out(uri: str) -> None:
    found = feed_of(uri, {}).plan(TABLES)
    assert [one.table for one in found.tables] == ["t", "orders", "users"]
    assert found.left_out == (("shop", "log"),)
    (warning,) = [one for one in found.warnings if "are not sent: shop.log" in one]
    assert warning.endswith("set force-replicate and mode=changelog" if "mode" in uri else "set force-replicate")
    if "mode" not in uri:
        forced = feed_of(uri, {"force-replicate": True}).plan(TABLES)
        assert forced.left_out == ()
        assert not any("not sent" in one for one in forced.warnings)


def test_a_plan_names_tables_that_share_a_topic() -> None:
    tables = [version([ID], [PRIMARY], database=name, name="x") for name in ("ä", "ö")]
    text = "[sink]\ndispatchers = [{matcher = ['*.*'], topic = '{schema}_{table}'}]"
    assert planned(text, tables).warnings == ("topic '__x' is that of several tables: ä.x, ö.x",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[[filter.event-filters]]\nmatcher = ['shop.*']\nignore-insert-value-expr = 'a = 1'",
            "'users' has no column 'a'",
        ),
        (
            "[[filter.event-filters]]\nmatcher = ['shop.orders']\nignore-insert-value-expr = \"a = 'x'\"",
            "is not a number",
        ),
        ("[[filter.event-filters]]\nmatcher = ['shop.users']\nignore-update-only-columns = ['x']", "has no column 'x'"),
        ("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value', index = 'i'}]", "no unique index 'i'"),
        ("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'columns', columns = ['note']}]", "no column 'note'"),
        ("[sink]\ncolumn-selectors = [{matcher = ['shop.*'], columns = ['a']}]", "leave"),
        (
            "[filter]\nrules = ['nope.*', 'x.y']",
            "include none of the 4 tables that exist .* allow-no-tables",
        ),
    ],
)
def test_what_a_table_cannot_do_is_refused_at_creation(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        planned(text)


def test_a_tenant_without_tables_may_have_a_feed() -> None:
    assert planned("", []).warnings == ("rule '*.*' matches no table that exists now", NO_TABLES)


def test_system_tables_views_and_tables_that_no_rule_matches_are_not_planned() -> None:
    system = version([ID], [PRIMARY], database="tidb_cdc", name="syncpoint_v1")
    assert [one.table for one in planned("[filter]\nrules = ['*.*', '!shop.*']", [*TABLES, system]).tables] == ["t"]


def test_every_recorded_table_can_be_planned() -> None:
    tables = {one.version.folded: one.version for window in golden_windows() for one in window.rows}
    text = "[sink]\ndispatchers = [{matcher = ['*.*'], topic = '{schema}_{table}', partition = 'index-value'}]"
    found = planned(text, list(tables.values()))
    assert 0 < len(found.tables) < len(tables)
    assert len(found.topics) == len(found.tables) + 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[sink]\ndispatchers = [{matcher = ['shop.*'], partition = 'index-value', index = 'nope'}]", "index 'nope'"),
        ("[sink]\ncolumn-selectors = [{matcher = ['shop.*'], columns = ['a']}]", "leave out 'id' of its key"),
        (
            "[[filter.event-filters]]\nmatcher = ['shop.*']\nignore-insert-value-expr = 'nope > 1'",
            "no column 'nope' \\(did you mean note\\?\\): correct it, or leave",
        ),
    ],
)
def test_what_no_table_can_do_is_refused_as_a_bad_configuration(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        planned(text, [ORDERS])
    assert (refused.value.http_status, refused.value.extra) == (400, {"parameter": "config"})
