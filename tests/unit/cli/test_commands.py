"""Options that every command has, and contexts."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tistream_cli.app import app
from tistream_client.cli.errors import CliError
from tistream_client.cli.local.contexts import Contexts, defaults, path_of
from tistream_client.cli.output import Group
from tistream_client.cli.trust import tls_context

DOCS = Path(__file__).parents[3] / "docs"
WITHOUT = {"up", "demo", "demo-restore", "demo-connect", "demo-kafka", "simulate", "agent"}


def leaves(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its name, as a user finds it."""
    if not isinstance(command, Group):
        yield names, command
        return
    with typer.Context(command) as ctx:
        for name in command.list_commands(ctx):
            yield from leaves(command.get_command(ctx, name), *names, name)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "contexts.json"
    monkeypatch.setenv("TISTREAM_CONFIG", str(path))
    for name in ("CONTEXT", "URL", "CLUSTER", "TENANT"):
        monkeypatch.delenv(f"TISTREAM_{name}", raising=False)
    return path


def run(*words: str) -> str:
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stdout


def test_every_command_takes_a_form_of_its_result() -> None:
    found = {" ".join(names): {opt for param in one.params for opt in param.opts} for names, one in leaves(
        typer.main.get_command(app))}  # fmt: skip
    assert len(found) > 50
    assert {name for name, opts in found.items() if "-o" not in opts} <= WITHOUT


def test_a_context_gives_what_is_required_and_the_url(config: Path) -> None:
    added = run("context", "add", "prod", "--url", "http://api:8000", "--cluster", "7", "--tenant", "acme")
    assert added == "context prod stored, and in use\n"
    run("context", "add", "test", "--url", "http://test:8000", "-o", "json")
    found = defaults(typer.main.get_command(app), Contexts(config).values(None))
    assert found["tenant"]["status"] == {"cluster": "7", "tenant": "acme", "url": "http://api:8000"}
    assert found["audit"] == {"url": "http://api:8000"}, "an optional --cluster is a filter"
    assert found["doctor"] == {"cluster": "7", "tenant": "acme", "url": "http://api:8000"}
    half = defaults(typer.main.get_command(app), {"url": "http://api:8000", "cluster": "7"})
    assert half["doctor"] == {"url": "http://api:8000"}, "it takes both or none"
    assert Contexts(config).values("test") == {"url": "http://test:8000"}
    listed = json.loads(run("context", "list", "-o", "json"))["contexts"]
    assert [(one["context"], one["current"]) for one in listed] == [("prod", True), ("test", False)]
    run("context", "use", "test")
    assert "*  test" in run("context", "list")
    run("context", "remove", "test")
    assert Contexts(config).values(None) == {}


@pytest.mark.parametrize(("words", "environ"), [(["--cluster", "8"], {}), ([], {"TISTREAM_CLUSTER": "8"})])
def test_a_doctor_does_not_look_at_the_tenant_of_a_context_in_another_cluster(
    config: Path, words: list[str], environ: dict[str, str]
) -> None:
    run("context", "add", "prod", "--url", "http://127.0.0.1:9", "--cluster", "7", "--tenant", "acme")
    with pytest.raises(CliError, match="--cluster and --tenant are needed together"):
        CliRunner().invoke(app, ["doctor", *words], env=environ, catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "environ", "sent"),
    [
        ([], {}, True),
        (["--url", "http://127.0.0.1:9/"], {}, True),
        (["--url", "http://127.0.0.2:9"], {}, False),
        ([], {"TISTREAM_URL": "http://127.0.0.2:9"}, False),
    ],
)
def test_credentials_of_a_context_are_for_its_server(
    words: list[str], environ: dict[str, str], sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "acme.token"
    for name in ("TISTREAM_TOKEN_FILE", "TISTREAM_TOKEN"):
        monkeypatch.setenv(name, "")  # restored afterwards, because commands write them
        monkeypatch.delenv(name)
    run("context", "add", "prod", "--url", "http://127.0.0.1:9", "--token-file", str(token))
    refused = ["pull", "--cluster", "7", "--tenant", "acme", "--follow", "--limit", "1"]
    assert CliRunner().invoke(app, [*refused, *words], env=environ).exit_code == 2
    assert os.environ.get("TISTREAM_TOKEN_FILE") == (str(token) if sent else None)


def test_an_unknown_context_is_answered_with_the_near_one(config: Path) -> None:
    run("context", "add", "production")
    with pytest.raises(CliError, match=r"no context 'producton'; did you mean production\?"):
        Contexts(config).use("producton")
    with pytest.raises(CliError, match="tistream context add x"):
        Contexts(config).use("x")


def test_a_file_that_has_no_contexts_is_refused_by_name(config: Path) -> None:
    config.write_text("[]")
    with pytest.raises(CliError, match=r"contexts\.json cannot be read as contexts"):
        Contexts(config)


def test_the_file_of_contexts_is_below_the_settings_of_the_user() -> None:
    assert path_of({"HOME": "/home/u"}) == Path("/home/u/.config/tistream/contexts.json")
    assert path_of({"HOME": "/home/u", "XDG_CONFIG_HOME": "/c"}) == Path("/c/tistream/contexts.json")


def test_times_and_tso_are_turned_into_each_other() -> None:
    both = json.loads(run("ts", "470596577375551488", "2026-11-20T14:04:36.927Z", "-o", "json"))["times"]
    assert both[0] == {"ts": "470596577375551488", "time": "2026-11-20T14:04:36.927Z", "counter": 0}
    assert both[1] == both[0]
    assert run("ts", "470596577375551488").splitlines()[1] == "470596577375551488  2026-11-20T14:04:36.927Z  0"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ts", "yesterday"], "use now, 15m (before now)"),
        (["pull", "--columns", "id"], "--table shop.orders"),
        (["pull", "--where", "id > 1", "--snapshot", "now"], "cannot be used with --snapshot"),
        (["pull", "--operations", "insert", "--squash", "--since", "1h"], "cannot be used with --squash"),
        (["pull", "--squash", "--since", "1h", "-o", "changes"], "cannot be used with --squash"),
        (["pull", "-o", "json"], "use -o ./json"),
        (["tenant", "list", "--url", "http://me:secret@host"], "has a user"),
        (["pull", "--tables", "shop.*", "--table", "shop.orders"], "--table, which names one"),
        (["pull", "--table", "orders"], "--table shop.orders"),
        (["pull", "--table", "shop."], "--table shop.orders"),
        (["tail", "orders"], "TABLE: needs a database: shop.orders"),
        (["tail", ".orders"], "TABLE: needs both names: shop.orders"),
        (["pull", "--operations", "insert,put"], "'put' is not an operation: use some of insert,update,delete"),
        (["txn", "1h"], "'1h' is not a start_ts"),
        (["undo", "--txn", "1h"], "'1h' is not a start_ts"),
        (["diff", "shop.orders"], "--key id=1"),
        (["changefeed", "resume", "-c", "f", "--checkpoint-ts", "1795183380000"], "looks like a Unix time"),
        (["node", "list", "-o", "xml"], "json"),
        (["tenant", "list", "--url", "ftp://x"], "http://127.0.0.1:8000"),
        (["pull", "--since", "yesterday"], "'yesterday' is not a time: use earliest, now, 15m (before now)"),
        (["pull", "--until", "earliest"], "'earliest' is not a time: use now, 15m (before now)"),
        (["pull", "--snapshot", "x"], "Invalid value for '--snapshot': 'x' is not a time"),
        (["tail", "--since", "x"], "'x' is not a time: use earliest"),
        (["rows", "shop.orders", "--at", "earliest"], "'--at': 'earliest' is not a time"),
        (["history", "shop.orders", "id=1", "--since", "x"], "use earliest, now"),
        (["history", "shop.orders", "id=1", "--until", "x"], "'x' is not a time"),
        (["diff", "shop.orders", "--since", "1h", "--until", "x"], "'x' is not a time"),
        (["restore", "--into", "sql:d", "--at", "x"], "'x' is not a time"),
        (["undo", "--from", "x"], "'x' is not a time"),
        (["tenant", "list", "--url", "http://x:8000/v1/clusters"], 'right: "http://x:8000"'),
        (["tenant", "list", "--url", "https://x/cdc/console"], 'right: "https://x/cdc"'),
    ],
)
def test_a_wrong_argument_is_refused_with_a_right_one(words: list[str], text: str) -> None:
    environ = {"TISTREAM_CLUSTER": "7", "TISTREAM_TENANT": "acme", "COLUMNS": "400"}
    found = CliRunner().invoke(app, words, env=environ)
    assert found.exit_code == 2
    assert text in found.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["rows", "orders"], "use DATABASE.TABLE"),
        (["rows", "shop.orders", "--key", "1"], "use id=1"),
        (["restore"], "give exactly one of --into"),
        (["restore", "--into", "sql:"], "write sql:DIR"),
        (["restore", "--into", "postgres://x"], "or use parquet:DIR"),
        (["restore", "--on-platform"], "parquet:URL, sql:URL, or dsn:FILE"),
        (["undo", "--txn", "5", "--where", "id"], "such as id=7"),
        (["changefeed", "create", "-c", "f", "--sink-uri", "x", "--config", "/no/file"], "/no/file cannot be read"),
        (["changefeed", "skip", "-c", "f", "--commit-ts", "1", "--table", "a.b", "--reason", "x"], "--ddl-job"),
        (["consume", "foo", "--into", "ndjson"], "such as kafka://host:9092/topic?protocol=open-protocol"),
        (["consume", "kafka://127.0.0.1:9/t"], "give exactly one of --into"),
    ],
)
def test_a_command_that_reads_its_arguments_later_ends_with_the_same_status(words: list[str], text: str) -> None:
    found = CliRunner().invoke(app, words, env={"TISTREAM_CLUSTER": "7", "TISTREAM_TENANT": "acme"})
    assert isinstance(found.exception, CliError)
    assert (found.exception.status, text in str(found.exception)) == (2, True)


@pytest.mark.parametrize(
    ("typed", "number", "offered"),
    [
        ("tistream ten", 1, ["tenant"]),
        ("tistream pull --format ", 3, ["ndjson", "arrow", "parquet"]),
        ("tistream context use pro", 3, ["prod"]),
        ("tistream --context t", 2, ["test"]),
    ],
)
def test_a_shell_completes_commands_values_and_contexts(typed: str, number: int, offered: list[str]) -> None:
    run("context", "add", "prod")
    run("context", "add", "test")
    environ = {"_TISTREAM_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(number)}
    assert CliRunner().invoke(app, [], env=environ, prog_name="tistream").stdout.split() == offered


@pytest.mark.parametrize("page", ["cli.md", "recipes.md"])
def test_the_commands_of_the_pages_are_there(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TISTREAM_CLUSTER", "7")
    monkeypatch.setenv("TISTREAM_TENANT", "acme")
    found = re.findall(r"^tistream (.*)$", (DOCS / page).read_text(), re.MULTILINE)
    assert found
    for line in found:
        command: Any = typer.main.get_command(app)
        words = shlex.split(line)
        while isinstance(command, Group):
            with typer.Context(command) as ctx:
                command = command.get_command(ctx, words.pop(0))
        command.make_context("tistream", words)  # raises for an option that is not there


def test_a_key_without_a_certificate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CA", "CERT"):
        monkeypatch.delenv(f"TISTREAM_{name}_FILE", raising=False)
    assert tls_context() is None
    monkeypatch.setenv("TISTREAM_KEY_FILE", "/keys/tls.key")
    with pytest.raises(CliError, match=r"TISTREAM_KEY_FILE /keys/tls.key .* TISTREAM_CERT_FILE .*give both"):
        tls_context()
