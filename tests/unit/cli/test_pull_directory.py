"""At which cursor a pull into a directory begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tistream_client.cli.errors import CliError
from tistream_client.cli.pull.directory import ToLines
from tistream_client.cli.pull.format import PullRequest


def begun(directory: Path, cursor: str | None) -> str | None:
    """The cursor at which a pull into the directory begins."""
    request = PullRequest("7", "acme", cursor=cursor)
    lines = ToLines(directory, request)
    try:
        return lines.resumed(request).cursor
    finally:
        lines.close()


def test_a_directory_of_an_earlier_version_does_not_take_another_cursor(tmp_path: Path) -> None:
    stored = {"type": "resolved", "resolved_ts": "9", "cursor": "c9", "format": "ndjson", "page": 3}
    (tmp_path / "end.json").write_text(json.dumps(stored))
    for same in (None, "c9"):
        assert begun(tmp_path, same) == "c9"
    with pytest.raises(CliError, match="omit --since and --cursor"):
        begun(tmp_path, "c2")
    (tmp_path / "end.json").write_text(json.dumps({"cursor": "c9", "page": 0}))
    assert begun(tmp_path, "c2") == "c2", "no page of the earlier pull is complete"
