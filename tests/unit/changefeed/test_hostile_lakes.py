"""A tenant may own the catalog of a feed into Iceberg, and the metadata of its tables: neither chooses what a worker
executes, which hosts it reaches, or which files it reads and deletes. tests/service/changefeed/test_hostile_catalogs.py
has the answers of REST catalogs."""
# Attack: tables in Iceberg whose metadata names code, addresses, and files outside a changefeed's warehouse

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.lake_tenant import BUILT, IMPL, SCHEMA, T, Tenant
from tistream.errors import TargetNotAllowed
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.sinks.iceberg.lake_files import read_file
from tistream_changefeed.sinks.iceberg.target import is_location, location


@pytest.fixture
def tenant(tmp_path: Path) -> Tenant:
    BUILT.clear()
    return Tenant(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("py-io-impl", IMPL),
        ("write.py-location-provider.impl", IMPL),
        ("s3.retry-strategy-impl", IMPL),
        ("s3.endpoint", "http://10.0.0.5:9000"),
        ("s3.proxy-uri", "http://10.0.0.5:9000"),
        ("write.data.path", "s3://platform"),
        ("write.metadata.path", "s3://platform"),
    ],
)
def test_a_table_chooses_neither_code_nor_addresses_nor_places(tenant: Tenant, name: str, text: str) -> None:
    table = tenant.table()
    assert tenant.lake.load(T) is not None
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    file.write_text(json.dumps({**metadata, "properties": {"owner": "acme", name: text}}))
    with pytest.raises(FeedFailed, match=f"{name}.*UNSET TBLPROPERTIES"):
        tenant.lake.load(T)
    assert not BUILT


@pytest.mark.parametrize("place", ["other/t", "lake/../other/t", "lake2/t"])
def test_a_table_elsewhere_is_not_read(tenant: Tenant, place: str) -> None:
    tenant.table(place)
    with pytest.raises(FeedFailed, match="is not below"):
        tenant.lake.load(T)


def test_metadata_and_data_files_elsewhere_are_neither_read_nor_deleted(tenant: Tenant) -> None:
    table = tenant.table()
    secret = tenant.root / "lake" / "globex.parquet"
    pq.write_table(pa.table({"id": [7]}), secret)
    tenant.catalog.load_table(T).add_files([f"file://{secret}"])
    lake = tenant.lake
    found = lake.load(T)
    assert found is not None
    [file] = lake.files(found)
    with pytest.raises(FeedFailed, match=r"globex\.parquet"), lake.asking("t"):
        read_file(found, SCHEMA, file)
    for one in (f"file://{secret}", str(secret), f"{found.location()}/../globex.parquet", f"{found.location()}2/x"):
        for act in (found.io.new_input, found.io.new_output, found.io.delete):
            with pytest.raises(TargetNotAllowed):
                act(one)
    assert secret.exists()
    tenant.catalog.drop_table(T)
    moved = tenant.root / "lake" / "00009-moved.metadata.json"
    moved.write_bytes(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    tenant.catalog.register_table(T, f"file://{moved}")
    with pytest.raises(FeedFailed, match=r"00009-moved"):
        tenant.lake.load(T)


def test_only_a_place_that_a_feed_has_made_is_cleared() -> None:
    made = location("s3://lake/", ("d", "t"), "0123456789abcdef")
    assert is_location("s3://lake", made)
    for other in (
        "s3://lake",
        "s3://lake/globex",
        f"{made}/x",
        "s3://lake/globex/t-0123456789abcdef",
        "s3://lake/../t",
    ):
        assert not is_location("s3://lake", other)
