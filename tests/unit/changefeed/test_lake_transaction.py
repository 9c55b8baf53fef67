"""A commit to an Iceberg table computes the metadata of the table once for each change."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyiceberg import table as pyiceberg_table
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.types import LongType, NestedField

from tistream_changefeed.sinks.iceberg.lake import Commit, Lake, QuickTransaction
from tistream_changefeed.sinks.iceberg.upkeep import Keeping

COLUMNS = [NestedField(number, name, LongType(), required=False) for number, name in ((1, "id"), (2, "value"))]
HOUR = 3_600_000 << 18


def catalog_in(folder: Path) -> SqlCatalog:
    found = SqlCatalog("lake", uri="sqlite://", warehouse=f"file://{folder}")
    found.create_namespace("d")
    found.create_table("d.t", Schema(COLUMNS[0]), properties={"commit.retry.num-retries": "0"})
    return found


def test_its_metadata_is_that_of_pyiceberg_after_each_change_and_after_the_commit(tmp_path: Path) -> None:
    catalog = catalog_in(tmp_path)
    table = catalog.load_table("d.t")
    transaction = QuickTransaction(table)

    def same() -> dict[str, Any]:
        wanted = Transaction.table_metadata.fget(transaction)  # type: ignore[attr-defined]
        assert transaction.table_metadata is transaction.table_metadata
        found: dict[str, Any] = transaction.table_metadata.model_dump(exclude={"last_updated_ms"})
        assert found == wanted.model_dump(exclude={"last_updated_ms"})
        return found

    seen = [same()]
    transaction.set_properties({"a": "1"})
    seen.append(same())
    transaction.update_snapshot().merge_append().commit()
    seen.append(same())
    transaction.remove_properties("a")
    seen.append(same())
    assert all(before != after for before, after in pairwise(seen))
    transaction.commit_transaction()
    assert same() == table.metadata.model_dump(exclude={"last_updated_ms"})
    other = catalog.load_table("d.t")
    with other.transaction() as change:
        change.set_properties({"b": "2"})
    table.refresh()
    assert same()["properties"]["b"] == "2"


def test_a_commit_computes_it_once_for_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = pyiceberg_table.update_table_metadata
    computed: list[int] = []

    def counted(base: Any, updates: Any, *more: Any) -> Any:
        computed.append(len(updates))
        return compute(base, updates, *more)

    monkeypatch.setattr(pyiceberg_table, "update_table_metadata", counted)
    catalog = catalog_in(tmp_path)
    lake = Lake(lambda: catalog, "iceberg://lake", f"file://{tmp_path}", Keeping(), lambda url: url)
    table = catalog.load_table("d.t")
    for number in range(1, 4):
        computed.clear()
        change = Commit(
            {"n": str(number)}, number, {"p": str(number)}, schema=Schema(*COLUMNS), resolved_ts=number * HOUR
        )
        lake.commit(table, change)
        assert computed == sorted(set(computed)), "each of more changes than the one before"
        assert len(computed) > 3
    assert catalog.load_table("d.t").properties["p"] == "3"
    assert len(catalog.load_table("d.t").metadata.snapshots) == 3
