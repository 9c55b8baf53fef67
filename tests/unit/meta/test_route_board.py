"""Routes that are published by several threads at once."""

from __future__ import annotations

from tistream.wire.meta import RouteTable
from tistream_meta.route_table import RouteBoard


def test_an_older_table_that_comes_late_replaces_nothing() -> None:
    board = RouteBoard(lambda: False)
    for version in (5, 4):
        board.publish(RouteTable(version=version, tenants=[], services={}))
    newest = board.current()
    assert newest is not None
    assert newest.version == 5
