from __future__ import annotations

from pathlib import Path

import pytest

from tistream.errors import InvalidRequest
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.backends.s3 import S3ObjectStore
from tistream.storage.open import check_url, open_objects


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
    ("url", "told"),
    [
        ("", "neither a path"),
        ("objects", "neither a path"),
        ("ftp://host/x", "neither a path"),
        ("s3://", "neither a path"),
        ("file://host/x", "neither a path"),
        ("s3://[bucket", "is not a URL"),
        ("s3://bucket?secret_key=hunter2", "unknown option 'secret_key'; known are endpoint, region"),
        ("s3://key:hunter2@bucket", "AWS_ACCESS_KEY_ID"),
        ("http://key:hunter2@bucket", "neither a path"),
        ("s3://bucket?endpoint=http://key:hunter2@minio:9000", "credentials"),
        ("s3://bucket?endpoint=http://key:hunter2@minio:port", "is not a URL"),
        ("s3://bucket?endpoint=minio:9000", "should look like http://host:9000"),
        ("s3://bucket?endpoint=minio", "should look like http://host:9000"),
        ("s3://bucket?endpoint=", "should look like http://host:9000"),
        ("s3://bucket?endpoint=http://minio:9000/path", "should look like http://host:9000"),
    ],
)
def test_refuses_what_it_does_not_know_and_repeats_no_password(url: str, told: str) -> None:
    for open_or_check in (open_objects, check_url):
        with pytest.raises(InvalidRequest, match="object store") as refused:
            open_or_check(url)
        assert told in str(refused.value)
        assert "hunter2" not in str(refused.value)
