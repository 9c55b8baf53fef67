"""The sink URI of a feed into Iceberg: what it means, what is refused, and where a feed may write."""

from __future__ import annotations

from typing import Any

import pytest

from support.feed_tables import Key, column, version
from tistream.errors import InvalidRequest, TargetNotAllowed
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.sinks.feeds import feed_of
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
        ("iceberg://lake?access-key=a&" + PLACE, {}, "needed together"),
        ("iceberg://lake?delta-share=5&" + PLACE, {}, "only a table itself has a delta"),
        ("iceberg://lake?mode=both&delta-share=101&" + PLACE, {}, "delta-share"),
        ("iceberg://lake?mode=upsert&" + PLACE, {"force-replicate": True}, "cannot be mirrored"),
        ("iceberg://lake?" + PLACE, {"tistream": {"on-table-error": "stop-table"}}, "stops as a whole"),
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
    with pytest.raises(InvalidRequest, match=r"two tables would be written to a\.t__changes"):
        feed(f"iceberg://lake?{PLACE}&mode=both").plan([*tables, changes])
