"""The exit status of commands whose server does not answer: 75, because the same command may succeed later."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tistream_cli.app import app, load_commands
from tistream_client.cli.errors import CliError

SERVER = "mysql://u:p@127.0.0.1:9"


@pytest.mark.parametrize(
    "words",
    [
        ["undo", "--txn", "5", "--apply", "--into", f"{SERVER}/d"],
        ["consume", "kafka://127.0.0.1:9/t", "--into", SERVER],
        ["agent", "status", "--port", "9"],
        ["connect", "--pd", "127.0.0.1:9", "--objects", "DIRECTORY"],
        ["connect", "--pd", "127.0.0.1:9", "--objects", "DIRECTORY", "--dry-run"],
        ["disconnect", "--pd", "127.0.0.1:9", "--objects", "DIRECTORY"],
        ["agent", "divide", "--pd", "127.0.0.1:9", "--objects", "DIRECTORY", "--territory", "1"],
    ],
)
def test_a_server_that_does_not_answer_may_answer_later(words: list[str], tmp_path: Path) -> None:
    load_commands()
    words = [str(tmp_path) if word == "DIRECTORY" else word for word in words]
    words += ["--cluster", "7", "--tenant", "acme"] if "--pd" in words else []
    found = CliRunner().invoke(app, words, env={"TISTREAM_CLUSTER": "7", "TISTREAM_TENANT": "acme"})
    status = found.exception.status if isinstance(found.exception, CliError) else found.exit_code
    assert (status, "127.0.0.1:9" in f"{found.exception}{found.output}") == (75, True)
