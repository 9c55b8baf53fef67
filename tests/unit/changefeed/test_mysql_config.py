"""The configuration of a feed into MySQL, its DDLs, and the errors of a server."""

from __future__ import annotations

from typing import Any

import pytest

from tistream.errors import InvalidRequest, TargetNotAllowed
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.create_table import Dialect
from tistream.targets.mysql import TargetFailed
from tistream_changefeed.config.parse import parse_feed, read_toml
from tistream_changefeed.core.sync_points import SyncPoints
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.sinks.feeds import feed_of
from tistream_changefeed.sinks.kafka.feed_settings import parsed, without_secrets
from tistream_changefeed.sinks.mysql.connection import failure_of
from tistream_changefeed.sinks.mysql.ddl import DdlRefused, ddl_statements, is_sent, rewritten
from tistream_changefeed.sinks.mysql.faults import changed_values, fault_of
from tistream_changefeed.sinks.mysql.mysql_feed import MySqlFeed
from tistream_changefeed.sinks.mysql.payload import DdlMark

HERE = "mysql://app@db:3307"
URI = "mysql://app:${secret:db}@db:3307/?worker-count=8&max-txn-row=256&time-zone=UTC&safe-mode=true"


def feed(uri: str, text: str = "") -> MySqlFeed:
    found = feed_of(uri, read_toml(text))
    assert isinstance(found, MySqlFeed)
    return found


def test_a_uri_of_ticdc_is_taken() -> None:
    found = feed(URI, "enable-sync-point = false\n[sink]\ntransaction-atomicity = 'none'")
    assert (found.server.address, found.server.user, found.server.slots, found.server.safe) == (
        "db:3307",
        "app",
        8,
        True,
    )
    assert found.server.with_secrets({"db": "hunter2"}).password == "hunter2"
    assert any("max-txn-row" in warning for warning in found.warnings)
    assert feed("tidb://root@[::1]/").server.address == "::1:3306"
    assert feed("mysql+ssl://root@h/").server.tls
    assert feed("mysql://root@h/").pipeline.sync_points is None
    marked = feed("mysql://root@h/", "enable-sync-point = true\nsync-point-interval = '1m'")
    assert (marked.pipeline.sync_points, marked.server.sync_retention_ms) == (SyncPoints(60_000), 86_400_000)
    assert feed("mysql://root@h/").pipeline.first_rows is None
    assert feed("mysql://root@h/?snapshot=now").pipeline.first_rows is not None


@pytest.mark.parametrize("atomicity", ["table", "global"])
def test_whole_transactions_have_one_connection(atomicity: str) -> None:
    assert feed(f"mysql://root@h/?transaction-atomicity={atomicity}").server.slots == 1


def test_a_password_is_taken_out_of_what_is_stored() -> None:
    found = without_secrets("copy", "mysql://me:hunter2%26x@h/?ssl-cert=${secret:c}&ssl-key=-----BEGIN x", {})
    assert (
        found.sink_uri
        == "mysql://me:${secret:copy.password}@h:3306/?ssl-cert=${secret:c}&ssl-key=${secret:copy.ssl-key}"
    )
    assert found.secrets == {"copy.password": "hunter2&x", "copy.ssl-key": "-----BEGIN x"}
    assert parse_feed(found.sink_uri, {}).config == parse_feed(found.sink_uri, found.document).config


@pytest.mark.parametrize(
    ("uri", "text", "reason"),
    [
        ("mysql:///", "", "names no server"),
        ("mysql://h/shop", "", "tables keep the names of their databases"),
        ("mysql://h:x/", "", "it is not a URI"),
        ("mysql://u:hunter2@h/", "", "would be stored in clear"),
        ("mysql://h/?password=x", "", "user and password stand before the host"),
        ("mysql://h/?worker-count=0", "", "does not lie from 1"),
        ("mysql://h/?partition-num=3", "", "is unknown"),
        ("mysql://h/?snapshot=2024", "", "tistream.snapshot: Input should be 'none' or 'now'"),
        ("mysql://h/?time-zone=Asia/Tokyo", "", "TIMESTAMP values are written in UTC"),
        ("mysql://h/?ssl-ca=/etc/passwd", "", "names a file of a worker"),
        ("mysql://h/", "sync-point-interval = '10s'", "does not lie from 30s"),
        ("mysql://h/", "sync-point-retention = 'a day'", "is not a duration, such as 5s"),
        ("mysql://h/", "[[sink.column-selectors]]\nmatcher = ['a.b']\ncolumns = ['*']", "not supported into MySQL"),
        ("mysql://h/", "[[sink.dispatchers]]\nmatcher = ['a.b']", "has no topics"),
        ("mysql://h/", "[tistream]\nshards-max = 4", "as many shards as tistream.shards says"),
        ("mysql://h/?transaction-atomicity=global", "[tistream]\nshards = 4", "set shards to 1"),
        ("mysql://h/", "[tistream]\ndelivery = 'at-least-once'", "every feed is exactly-once"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(uri: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        feed(uri, text)
    assert "hunter2" not in str(refused.value)


def test_only_allowed_servers_are_written_to() -> None:
    feed("mysql://root@h/").check_allowed(Allowed(["h"]))
    with pytest.raises(TargetNotAllowed, match="h:3306"):
        feed("mysql://root@h/").check_allowed(Allowed(["other"]))


def test_a_feed_into_mysql_is_none_into_kafka() -> None:
    with pytest.raises(InvalidRequest, match="does not write into Kafka"):
        parsed("mysql://root@h/", {})


def mark(query: str, action: str, **how: Any) -> DdlMark:
    return DdlMark(DdlEvent(10, 9, 7, "shop", "a", query, action, 1, (("shop", "a"),)), (), (("shop", "a"),), **how)


def test_clauses_that_only_tidb_has_are_left_out() -> None:
    query = (
        "alter table a add b bigint auto_random(5) comment 'AUTO_RANDOM' /*T![x] CLUSTERED */, shard_row_id_bits = 4"
    )
    assert (
        rewritten(query, Dialect.MARIADB) == "alter table a add b bigint  comment 'AUTO_RANDOM' /*T![x] CLUSTERED */, "
    )
    assert rewritten(query, Dialect.TIDB) == query
    collated = "alter table a convert to character set utf8mb4 collate utf8mb4_0900_ai_ci"
    assert rewritten(collated, Dialect.MARIADB).endswith("utf8mb4_uca1400_nopad_ai_ci")
    assert rewritten(collated, Dialect.MYSQL) == collated


def test_a_statement_of_several_jobs_is_built_for_each() -> None:
    assert ddl_statements(mark("drop table a, b", "drop table"), Dialect.MYSQL) == ("DROP TABLE `shop`.`a`",)
    assert ddl_statements(mark("truncate a", "truncate table"), Dialect.MYSQL) == ("TRUNCATE TABLE `shop`.`a`",)


@pytest.mark.parametrize("action", ["exchange partition", "recover table", "rollback of add column"])
def test_what_cannot_be_executed_is_refused_by_name(action: str) -> None:
    with pytest.raises(DdlRefused, match=f"{action} is not supported"):
        ddl_statements(mark("…", action), Dialect.MYSQL)


def test_ddls_that_change_nothing_there_are_not_sent() -> None:
    assert not is_sent("set tiflash replica")
    assert not is_sent("create sequence")
    assert is_sent("add column")


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (1213, "again"),
        (3101, "again"),  # group replication has rolled the transaction back
        (8005, "again"),  # TiDB's write conflict
        (1045, "refused"),
        (1047, "retry"),  # a Galera node that has not joined yet
        (8252, "retry"),  # TiDB slows the user down
        (None, "retry"),
        (2013, "retry"),
        (1040, "retry"),
        (1062, "table"),
        (1054, "table"),
    ],
)
def test_errors_stop_a_table_only_if_they_concern_it(code: int | None, fault: str) -> None:
    assert fault_of(code) == fault


def test_what_mysql_8_says_of_its_own_syntax_is_no_changed_value() -> None:
    assert changed_values(3, [1287, 1265, 1287]) == 1
    assert changed_values(70, [1265] * 64) == 70


@pytest.mark.parametrize("code", [None, 1045, 1146])
def test_an_error_names_the_server_once(code: int | None) -> None:
    found = str(failure_of(TargetFailed(f"{HERE}/: it says no", code), feed(URI).server))
    assert found.startswith(f"{HERE}: it says no")
