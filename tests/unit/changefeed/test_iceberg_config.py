"""The sink URI of a feed into Iceberg: what it means, what is refused, and where a feed may write."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy.engine import URL

from support.feed_tables import Key, column, version
from tistream.errors import InvalidRequest, TargetNotAllowed
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.sinks.feeds import feed_of
from tistream_changefeed.sinks.iceberg.catalogs.address import opened_address
from tistream_changefeed.sinks.iceberg.lake_feed import LakeFeed
from tistream_changefeed.sinks.iceberg.upkeep import Keeping

PLACE = "catalog-uri=sqlite:////lake/catalog.db&warehouse=file:///lake"


def feed(uri: str, document: dict[str, Any] | None = None) -> LakeFeed:
    found = feed_of(uri, document or {})
    assert isinstance(found, LakeFeed)
    return found


def test_a_uri_names_catalog_namespace_and_what_is_kept() -> None:
    found = feed(
        f"iceberg://lake/raw.%7Bdatabase%7D?{PLACE}&mode=both&flush-interval=10s&file-size=1048576&keep-hours=2"
    )
    target = found.target
    assert (target.shapes, target.flush_interval_ms, target.file_bytes) == (("changes", "table"), 10_000, 1 << 20)
    assert target.keeping == Keeping(100, 2)
    assert target.identifier(("shop", "orders"), "table") == ("raw", "shop", "orders")
    assert target.identifier(("shop", "orders"), "changes") == ("raw", "shop", "orders__changes")
    assert feed(f"iceberg://lake?{PLACE}").target.identifier(("shop", "t"), "table") == ("shop", "t")


@pytest.mark.parametrize(
    ("uri", "document", "reason"),
    [
        ("iceberg://lake", {}, "no option catalog-uri"),
        ("iceberg://lake?catalog-uri=sqlite:////c", {}, "no option warehouse"),
        ("iceberg://user@lake?" + PLACE, {}, "names no catalog"),
        ("iceberg://lake/a/b?" + PLACE, {}, "not a namespace"),
        ("iceberg://lake?mode=append&" + PLACE, {}, "mode"),
        ("iceberg://lake?colour=red&" + PLACE, {}, "unknown"),
        ("iceberg://lake?catalog-uri=mysql://a:hush@h/c&warehouse=file:///lake", {}, "has a password"),
        ("iceberg://lake?catalog-uri=http://[bad&warehouse=file:///lake", {}, "not a URL: write https://HOST:PORT"),
        ("iceberg://lake?access-key=a&" + PLACE, {}, "needed together"),
        ("iceberg://lake?delta-share=5&" + PLACE, {}, "only a table itself has a delta"),
        ("iceberg://lake?mode=both&delta-share=101&" + PLACE, {}, "delta-share"),
        ("iceberg://lake?mode=upsert&" + PLACE, {"force-replicate": True}, "cannot be mirrored"),
        ("iceberg://lake?" + PLACE, {"tistream": {"on-table-error": "leave-table"}}, "never left behind"),
        (
            "iceberg://lake?" + PLACE,
            {"tistream": {"tables": [{"matcher": ["a.*"], "on-table-error": "leave-table"}]}},
            "never left behind",
        ),
        ("iceberg://lake?" + PLACE, {"sink": {"column-selectors": []}}, "column selectors"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(uri: str, document: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as found:
        feed(uri, document)
    assert "hush" not in str(found.value)


def test_a_feed_writes_where_the_operator_allows() -> None:
    local = feed(f"iceberg://lake?{PLACE}")
    local.check_allowed(Allowed((), ["file:///lake"]))
    rest = feed("iceberg://lake?catalog-type=rest&catalog-uri=https://catalog/x&warehouse=s3://lake/a")
    rest.check_allowed(Allowed(["catalog"], ["s3://lake"]))
    for one, hosts, urls in (
        (local, (), ["file:///other"]),
        (feed("iceberg://lake?catalog-uri=sqlite:////etc/c.db&warehouse=file:///lake"), (), ["file:///lake"]),
        (rest, (), ["s3://lake"]),
        (rest, ("catalog",), ["s3://other"]),
    ):
        with pytest.raises(TargetNotAllowed):
            one.check_allowed(Allowed(hosts, urls))


LAKE = Allowed(["kafka:9092", "db"], ["file:///lake"])


def with_catalog(uri: str, kind: str = "sql") -> LakeFeed:
    return feed(f"iceberg://lake?catalog-type={kind}&catalog-uri={quote(uri, safe='')}&warehouse=file:///lake")


@pytest.mark.parametrize(
    "uri",
    [
        "mysql+pymysql://u@kafka:9092/x?host=evil.example&local_infile=1",
        "mysql+pymysql://u@kafka:9092/x?local_infile=1",
        "mysql+pymysql://u@kafka:9092/x?unix_socket=/run/x",
        "mysql+pymysql://u@kafka:9092/x?read_default_file=/etc/x",
        "mysql+pymysql://u@kafka:9092/x?plugin=x",
        "mysql+pymysql://u@kafka:9092/x?charset=a&charset=b",
        "mysql+pymysql://u@kafka:9092/x?ssl_ca=/etc/passwd",
        "mysql+pymysql://kafka:9092#@evil.example:3306/x?local_infile=1",
        "mysql+pymysql://kafka:9092/a@evil.example:3306/x",
        "mysql+pymysql://u@kafka:3306/x",
        "mysql+pymysql:///x",
        "postgresql://u@db,evil.example/x",
        "postgresql://u@%2Frun/x",
        "postgresql://u@db/host%3Devil.example",
        "mysql+mysqldb://u@kafka:9092/x",
        "oracle://u@db/x",
        "https://db/x",
        "sqlite:////lake/x#/../../etc/y.db",
        "sqlite:////lake/../etc/y.db",
        "sqlite:////lake/%2e%2e/etc/y.db",
        "sqlite:////lake/c.db?uri=true",
        "sqlite://",
        "db",
    ],
)
def test_a_catalog_elsewhere_is_refused_however_its_address_is_written(uri: str) -> None:
    found = with_catalog(uri)
    with pytest.raises(TargetNotAllowed):
        found.check_allowed(LAKE)
    with pytest.raises(TargetNotAllowed):
        found.lake({}, LAKE)


@pytest.mark.parametrize(
    "uri",
    [
        "https://u@db/x",
        "https://db#@evil.example/",
        "https://db\\@evil.example/",
        "https://db?x",
        "ftp://db/",
        "https://[::1]/",
    ],
)
def test_a_rest_catalog_elsewhere_is_refused(uri: str) -> None:
    with pytest.raises(TargetNotAllowed):
        with_catalog(uri, "rest").check_allowed(LAKE)
    with pytest.raises(TargetNotAllowed):
        with_catalog(uri, "rest").lake({}, LAKE)


def test_a_secret_is_part_of_an_address_and_moves_it_nowhere() -> None:
    database = "mysql+pymysql://u:${secret:p}@kafka:9092/x?charset=utf8mb4&connect_timeout=5"
    for password in ("a@evil.example:9092/y?z=", "p#@/%?:", "${secret:p}"):
        url = opened_address("sql", database, {"p": password}, LAKE)
        assert isinstance(url, URL)
        assert (url.password, url.host, url.port, url.database) == (password, "kafka", 9092, "x")
    with_catalog(database).check_allowed(LAKE)
    file = with_catalog("sqlite:////lake/${secret:x}")
    file.check_allowed(LAKE)
    with pytest.raises(TargetNotAllowed):
        file.lake({"x": "../tistream/meta.db"}, LAKE)
    for uri in ("https://${secret:p}/", "https://db${secret:p}/"):
        with pytest.raises(TargetNotAllowed):
            opened_address("rest", uri, {"p": "x@evil.example"}, LAKE)
    assert opened_address("rest", "https://db/${secret:p}/a", {"p": "b/c"}, LAKE) == "https://db/b%2Fc/a"
    with pytest.raises(TargetNotAllowed):
        opened_address("sql", "${secret:p}", {"p": "mysql+pymysql://u@evil.example:9092/x"}, LAKE)
    with_catalog("postgresql://u@db/x?sslmode=verify-full&sslrootcert=/lake/ca.pem").check_allowed(LAKE)


def test_two_tables_of_one_name_need_the_database_in_the_namespace() -> None:
    tables = [
        version([column("id")], [Key("primary", ("id",), primary=True)], database=name, table_id=number)
        for number, name in enumerate(("a", "b"), 1)
    ]
    with_deltas = feed(f"iceberg://lake?{PLACE}&mode=upsert&delta-share=5")
    assert with_deltas.target.delta_share == 5
    assert [one.topic for one in with_deltas.plan(tables).tables] == ["a.t, a.t_delta", "b.t, b.t_delta"]
    planned = feed(f"iceberg://lake?{PLACE}&mode=both").plan(tables)
    assert [one.topic for one in planned.tables] == ["a.t__changes, a.t", "b.t__changes, b.t"]
    with pytest.raises(InvalidRequest, match="two tables"):
        feed(f"iceberg://lake/all?{PLACE}").plan(tables)
    changes = version([column("id")], [Key("primary", ("id",), primary=True)], database="a", name="t__changes")
    feed(f"iceberg://lake?{PLACE}&mode=upsert").plan([*tables, changes])
    with pytest.raises(InvalidRequest, match=r"would be written to a\.t__changes, a\.t and a\.t__changes: put"):
        feed(f"iceberg://lake?{PLACE}&mode=both").plan([*tables, changes])
