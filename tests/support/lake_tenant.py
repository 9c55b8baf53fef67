"""A tenant who owns the catalog of a feed into Iceberg, and the metadata of its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_feed import lake_feed

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
T = ("d", "t")
BUILT: list[Any] = []


class Hostile:
    """A class that is importable in the worker, such as subprocess.Popen."""

    def __init__(self, *arguments: Any) -> None:
        BUILT.append(arguments)


IMPL = f"{__name__}.Hostile"


class Tenant:
    """A catalog of SQLite that its tenant changes with an engine of his own, and the feed into it."""

    def __init__(self, root: Path) -> None:
        self.root, self.warehouse = root, f"file://{root}/lake"
        self.uri = f"sqlite:///{root}/lake/catalog.db"
        (root / "lake").mkdir()
        self.catalog = SqlCatalog("lake", uri=self.uri, warehouse=self.warehouse)
        self.catalog.create_namespace("d")

    def table(self, place: str = "lake/t") -> Table:
        return self.catalog.create_table(T, SCHEMA, f"file://{self.root}/{place}")

    @property
    def lake(self) -> Lake:
        feed = lake_feed(f"iceberg://lake?catalog-uri={self.uri}&warehouse={self.warehouse}", {})
        return feed.lake({}, Allowed((), [f"file://{self.root}"]))
