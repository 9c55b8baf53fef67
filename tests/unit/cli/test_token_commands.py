"""Tokens on the command line: grants, the file, and what is sent."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tistream.wire.tokens import Grant, parse_token
from tistream_cli.app import app
from tistream_cli.commands.token import grant_of, spelled
from tistream_client.cli import app as app_module
from tistream_client.cli import bearer, errors
from tistream_client.cli.errors import CliError

TEXT = "tst_0123456789abcdef_" + "A" * 43


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (errors.TOKEN_FILE, errors.TOKEN):
        monkeypatch.setenv(name, "x")  # and so put back, whatever the test does
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("operate:*", {"actions": ["operate"], "cluster": "*"}),
        ("read,push:7/acme", {"actions": ["read", "push"], "cluster": "7", "tenant": "acme"}),
        (
            "read:7/acme/a%2Fb/%C3%BC",
            {"actions": ["read"], "cluster": "7", "tenant": "acme", "database": "a/b", "table": "ü"},
        ),
    ],
)
def test_a_grant_is_written_as_it_is_read(text: str, grant: dict[str, object]) -> None:
    assert grant_of(text) == grant
    assert spelled(Grant.model_validate(grant).model_dump()) == text


@pytest.mark.parametrize("text", ["read", ":7", "read:", "read:7//shop", "read:7/acme/shop/orders/x", ""])
def test_a_grant_that_could_mean_more_than_was_meant_is_refused(text: str) -> None:
    with pytest.raises(CliError):
        grant_of(text)


def test_a_new_token_is_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "first.token"
    answer = CliRunner().invoke(app, ["token", "new", "--out", str(path)])
    assert (answer.exit_code, answer.output) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert parse_token(path.read_text().strip()) is not None
    before = path.read_text()
    again = CliRunner().invoke(app, ["token", "new", "--out", str(path)])
    assert isinstance(again.exception, CliError), "nothing is overwritten"
    assert path.read_text() == before
    printed = CliRunner().invoke(app, ["token", "new"]).output
    assert parse_token(printed.strip()) is not None
    assert printed.strip() != before.strip()


def test_the_token_comes_from_the_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bearer.headers() == {}
    monkeypatch.setenv(errors.TOKEN, "of-the-environment")
    assert bearer.headers() == {"authorization": "Bearer of-the-environment"}
    path = tmp_path / "token"
    path.write_text(f"{TEXT}\n")
    app_module.remember("token_file", path, None)
    assert bearer.headers() == {"authorization": f"Bearer {TEXT}"}
    for bad in ("", "two words", "line\nbreak"):
        path.write_text(bad)
        with pytest.raises(CliError, match=re.escape(str(path))):
            bearer.headers()
    path.unlink()
    with pytest.raises(CliError, match="No such file"):
        bearer.headers()


def test_every_command_of_the_api_shows_it(tmp_path: Path) -> None:
    """A token file that is not there is noticed by whichever command calls the API."""
    missing = str(tmp_path / "none")
    for command in (
        ["tenant", "list", "--cluster", "7"],
        ["node", "list"],
        ["task", "list"],
        ["owner"],
        ["token", "list"],
        ["pull", "--cluster", "7", "--tenant", "acme"],
    ):
        answer = CliRunner().invoke(app, ["--token-file", missing, *command, "--url", "http://127.0.0.1:9"])
        assert isinstance(answer.exception, CliError), command
        assert missing in str(answer.exception)
