"""A restore writes and reads only where the settings of the process allow it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tistream.errors import InvalidRequest, TargetNotAllowed
from tistream.wire.bulk.restores import MySqlPlace, ParquetPlace
from tistream_ingest.restore.allowed import AllowedTargets, below
from tistream_ingest.settings import IngestSettings

PREFIX = "s3://exports/tistream?endpoint=http://127.0.0.1:9000"


@pytest.mark.parametrize(
    "url",
    [
        "s3://exports/tistream?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/a/b%20c?endpoint=http://127.0.0.1:9000",
    ],
)
def test_a_url_below_an_allowed_prefix_is_allowed(url: str) -> None:
    assert below(url, PREFIX)
    AllowedTargets([PREFIX], None).check(ParquetPlace(kind="parquet", url=url))


@pytest.mark.parametrize(
    "url",
    [
        "s3://exports/tistream",
        "s3://exports/tistream/a?endpoint=http://attacker.example:9000",
        "s3://exports/tistream/a?endpoint=http://127.0.0.1:9000&region=x",
        "s3://exports/tistream-of-another?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/../secret?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/%2e%2e/secret?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/a/%2E./b?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/a%2f..%2f..%2fb?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/a//b?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/a\\..\\b?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/a%00?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/a\n?endpoint=http://127.0.0.1:9000",
        "s3://exports/tistream/a?endpoint=http://127.0.0.1:9000#x",
        "S3://exports/tistream?endpoint=http://127.0.0.1:9000",
        "s3://platform/committed",
        "file:///etc",
        "/etc",
        "memory:",
        "",
    ],
)
def test_every_other_url_is_refused(url: str) -> None:
    assert not below(url, PREFIX)
    with pytest.raises(TargetNotAllowed) as refused:
        AllowedTargets([PREFIX], None).check_url(url)
    assert not url or url not in str(refused.value)


def test_a_setting_names_prefixes_and_an_empty_one_allows_nothing() -> None:
    def prefixes(text: str) -> tuple[str, ...]:
        return IngestSettings(node_id="ingest-1", meta_url="http://meta", restore_urls=text).restore_prefixes

    assert prefixes(" s3://a/b, ,file:///c,") == ("s3://a/b", "file:///c")
    assert prefixes("") == ()
    for wrong in ('["s3://a/b"]', "s3://a/b,exports", "s3://key:secret@a/b"):
        with pytest.raises(ValidationError, match="separate prefixes by commas"):
            prefixes(wrong)
    assert not below("/etc", "")


def test_without_a_setting_nothing_is_allowed() -> None:
    for place in (ParquetPlace(kind="parquet", url="s3://a/b"), MySqlPlace(kind="mysql", dsn_file="a")):
        with pytest.raises(InvalidRequest):
            AllowedTargets([], None).check(place)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dsn").mkdir()
    (tmp_path / "dsn" / "copy").write_text("mysql://u:secret@127.0.0.1:4000\n")
    (tmp_path / "dsn" / "bad").write_text("root:secret-of-another-kind")
    (tmp_path / "dsn" / "huge").write_text("mysql://u:p@h" + " " * 5_000)
    (tmp_path / "dsn" / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "secret").write_text("mysql://u:secret@127.0.0.1:4000\n")
    (tmp_path / "dsn" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "dsn" / "loop").symlink_to(tmp_path / "dsn" / "loop")
    (tmp_path / "dsn-of-another").mkdir()
    (tmp_path / "dsn-of-another" / "copy").write_text("mysql://u:secret@127.0.0.1:4000\n")
    return tmp_path


def test_a_file_below_the_directory_is_read(folder: Path) -> None:
    allowed = AllowedTargets([], str(folder / "dsn"))
    for name in ("copy", "./copy", f"{folder}/dsn/copy"):
        assert allowed.server(name).host == "127.0.0.1"


def test_a_file_elsewhere_and_one_that_is_not_there_get_one_answer(folder: Path) -> None:
    allowed = AllowedTargets([], str(folder / "dsn"))
    said = set()
    for name in (
        "../secret",
        "../dsn-of-another/copy",
        f"{folder}/secret",
        "link",
        "loop",
        "huge",
        "binary",
        ".",
        "none",
        "/etc/passwd",
        "/dev/zero",
        "a\0b",
        "x" * 1_000,
    ):
        with pytest.raises(TargetNotAllowed) as refused:
            allowed.server(name)
        said.add(str(refused.value))
    assert len(said) == 1
    assert str(folder) not in said.pop()


def test_a_file_without_a_url_is_refused_and_nothing_of_it_is_shown(folder: Path) -> None:
    with pytest.raises(TargetNotAllowed) as refused:
        AllowedTargets([], str(folder / "dsn")).server("bad")
    assert "secret" not in str(refused.value)
