from __future__ import annotations

from pathlib import Path

import pytest

from tistream.errors import InvalidRequest
from tistream.storage.directory import DirectoryObjectStore
from tistream.storage.memory import MemoryObjectStore
from tistream.storage.open import open_objects
from tistream.storage.s3 import S3ObjectStore


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}"])
def test_directories(form: str, tmp_path: Path) -> None:
    store = open_objects(form.format(tmp_path / "with%20space"))
    assert isinstance(store, DirectoryObjectStore)
    store.put("a/b", b"1")
    name = "with%20space" if form == "{}" else "with space"
    assert (tmp_path / name / "a" / "b").read_bytes() == b"1"


def test_memory() -> None:
    store = open_objects("memory:")
    assert isinstance(store, MemoryObjectStore)
    assert store is not open_objects("memory:")


@pytest.mark.parametrize(
    "url", ["s3://bucket?region=eu-west-1", "s3://bucket/some/prefix/?endpoint=http://127.0.0.1:9000&region=x"]
)
def test_s3(url: str) -> None:
    assert isinstance(open_objects(url), S3ObjectStore)


@pytest.mark.parametrize(
    "url",
    ["", "objects", "ftp://host/x", "s3://", "s3://key:secret@bucket", "s3://bucket?secret_key=x", "file://host/x"],
)
def test_refuses_what_it_does_not_know(url: str) -> None:
    with pytest.raises(InvalidRequest, match="object store"):
        open_objects(url)
