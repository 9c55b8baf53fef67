"""`tistream` of the client alone, on a platform: pulls into a directory, tail, diff of a row, doctor, statuses; and the
recipes of docs/recipes.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from support import golden
from support.api_world import Platform
from support.certificates import Authority
from support.cutting_proxy import cutting
from support.platform import free_port
from support.pull import Consumer
from support.waiting import eventually
from tistream_client import TiStream, UnknownName
from tistream_client.cli.app import app

EVERYTHING = golden.load("everything")
PAGE = (Path(__file__).parents[3] / "docs/cli.md").read_text()
RECIPES = (Path(__file__).parents[3] / "docs/recipes.md").read_text()
Line = dict[str, Any]


@pytest.fixture(scope="module")
def orders(loaded: Consumer) -> list[Line]:
    """The changes of shop.orders, as the API shows them."""
    found = loaded.pull(until_ts=EVERYTHING.end_ts, start_ts=EVERYTHING.snapshot_ts, limit=100_000)
    return [line for line in found if line["type"] == "row" and line["table"] == "orders"]


@pytest.fixture(autouse=True)
def environ(loaded: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose context is the platform's tenant."""
    for name in ("TOKEN", "TOKEN_FILE", "CONTEXT", "URL", "CLUSTER", "TENANT"):
        monkeypatch.delenv(f"TISTREAM_{name}", raising=False)
    monkeypatch.setenv("TISTREAM_CONFIG", str(tmp_path / "contexts.json"))
    monkeypatch.chdir(tmp_path)
    run("context", "add", "here", "--url", loaded.url, "--cluster", "7", "--tenant", "acme")


def tried(*words: object) -> Any:
    return CliRunner().invoke(app, list(map(str, words)))


def run(*words: object) -> str:
    found = tried(*words)
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stdout


def failed(*words: object) -> tuple[int, str]:
    """The status and the text of a command that fails."""
    error = tried(*words).exception
    assert error is not None
    return getattr(error, "status", -1), str(error)


def pulled(directory: Path) -> list[tuple[int, str]]:
    files = sorted((directory / "shop.orders").glob("*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return [(row["commit_ts"], row["op"]) for row in rows]


def test_a_pull_into_a_directory_is_continued_by_the_same_command(orders: list[Line], tmp_path: Path) -> None:
    half = int(orders[len(orders) // 2]["commit_ts"])
    words = ["pull", "--table", "shop.orders", "--since", EVERYTHING.snapshot_ts, "--format", "parquet", "-o", "out"]
    run(*words, "--until", half)
    known = [(int(one["commit_ts"]), one["op"]) for one in orders]
    assert pulled(tmp_path / "out") == [one for one in known if one[0] <= half]
    run(*words, "--until", half)
    assert pulled(tmp_path / "out") == [one for one in known if one[0] <= half], "it had everything"
    run(*words, "--until", "now")
    assert pulled(tmp_path / "out") == known
    words[4] = "9d"
    status, text = failed(*words)
    assert status == 1
    assert "repeat --since or --cursor as it was" in text


def test_a_pull_of_lines_into_a_directory_is_continued_too(orders: list[Line], tmp_path: Path) -> None:
    half = orders[len(orders) // 2]["commit_ts"]
    words = ["pull", "--table", "shop.orders", "--since", EVERYTHING.snapshot_ts, "--events", "rows", "-o", "out"]
    for until in (half, half, "now", "now"):
        run(*words, "--until", until)
    (tmp_path / "out" / "000007.ndjson").write_text("of a page that was not complete\n")
    run(*words, "--until", "now")
    files = sorted((tmp_path / "out").glob("*.ndjson"))
    assert [json.loads(line) for file in files for line in file.read_text().splitlines()] == orders
    assert "not cluster=7" in failed(*words, "--format", "parquet")[1]


def test_a_pull_of_lines_takes_times_of_people(orders: list[Line]) -> None:
    words = ("pull", "--table", "shop.orders", "--since", "2026-11-01", "--until", "now", "--events", "rows")
    status, text = failed(*words)
    assert status == 1
    assert f"begin at --since {EVERYTHING.snapshot_ts} (2026-" in text
    lines = run(*words[:3], "--since", "earliest", *words[5:]).splitlines()
    assert [one for line in lines if (one := json.loads(line))["type"] == "row"] == orders
    status, text = failed("pull", "--since", "1m", "--until", "now")
    assert status == 75
    assert text.startswith("nothing after 1m can be read yet: the newest ts is 4705965")
    status, text = failed("pull", "--since", "1m", "--until", "2m")
    assert status == 2
    assert text.endswith("use --since 2h --until 1h")


def test_a_pull_leaves_out_what_its_filters_do(orders: list[Line], tmp_path: Path) -> None:
    inserts = [one for one in orders if one["op"] == "put" and one["old_row"] is None and int(one["key"]["id"]) > 2]
    words = ["pull", "--table", "shop.orders", "--since", "earliest", "--events", "rows"]
    words += ["--where", "id > 2", "--operations", "insert", "--columns", "id,amount"]
    lines = [json.loads(line) for line in run(*words).splitlines()]
    shown = [{name: one["row"][name] for name in ("id", "amount")} for one in inserts]
    assert [line["row"] for line in lines if line["type"] == "row"] == shown
    run(*words, "--format", "parquet", "-o", "out")
    assert pulled(tmp_path / "out") == [(int(one["commit_ts"]), "put") for one in inserts]
    assert failed(*words[:-1], "id,amout")[0] == 1


def test_tail_shows_lines_for_eyes(orders: list[Line]) -> None:
    words = ("tail", "shop.orders", "--since", EVERYTHING.snapshot_ts, "-n", 4)
    lines = run(*words, "--color").splitlines()
    assert len(lines) == 4
    assert all("\x1b[" in line and "shop.orders" in line for line in lines if "!" not in line)
    assert json.loads(run(*words[:-1], 1, "-o", "json"))["type"] in ("row", "ddl")


def test_diff_of_a_key_is_the_history_of_its_row(orders: list[Line]) -> None:
    key = orders[-1]["key"]
    own = [one for one in orders if one["key"] == key]
    lines = run("diff", "shop.orders", "--key", f"id={key['id']}").splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("@@")] == [one["commit_ts"] for one in own]
    assert len([line for line in lines if line.startswith("+ ")]) >= len(own[0]["row"])
    parsed = [
        json.loads(line) for line in run("diff", "shop.orders", "--key", json.dumps(key), "-o", "json").splitlines()
    ]
    assert [one["commit_ts"] for one in parsed] == [one["commit_ts"] for one in own]


def test_after_cut_answers_the_same_command_continues(loaded: Consumer, orders: list[Line], tmp_path: Path) -> None:
    """Over TLS with certificates of both sides."""
    authority = Authority(tmp_path, "authority")
    server, own = authority.sign("server"), authority.sign("client")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    tls.load_cert_chain(server.cert_file, server.key_file)
    tls.verify_mode = ssl.CERT_REQUIRED
    options = ["--ca-file", authority.file, "--cert-file", own.cert_file, "--key-file", own.key_file]
    words = ["pull", "--table", "shop.orders", "--since", EVERYTHING.snapshot_ts, "--until", EVERYTHING.end_ts]
    before = dict(os.environ)
    with cutting(int(loaded.url.rsplit(":", 1)[1]), seed=7, tls=tls) as proxy:
        status, text = failed(*words, "--url", proxy.url)
        assert status == 1, "to try again would not help"
        assert "CERTIFICATE_VERIFY_FAILED" in text
        try:
            while (found := tried(*options, *words, "--url", proxy.url, "--format", "parquet", "-o", "out")).exit_code:
                assert getattr(found.exception, "status", -1) == 75, found.exception
        finally:
            os.environ.clear()
            os.environ.update(before)
        assert proxy.cuts >= 2
    assert pulled(tmp_path / "out") == [(int(one["commit_ts"]), one["op"]) for one in orders]


def test_a_doctor_looks_at_every_service(up: Platform) -> None:
    looked_at = "api", "this client", "clock of the api", "meta and its database", "dispatcher-1", "sorter-1"
    states: dict[str, str] = {}

    def all_well() -> bool:
        """An answer that was seconds under way shows a clock that is behind."""
        found = json.loads(tried("doctor", "--cluster", "7", "--tenant", "acme", "-o", "json").stdout)["findings"]
        states.update({one["what"]: one["state"] for one in found})
        return {states[what] for what in (*looked_at, "object store")} == {"ok"}

    eventually(all_well)
    assert states["tenant 7/acme"] != "unknown"
    words = ("--url", f"http://127.0.0.1:{free_port()}")
    assert failed("doctor", *words) == (1, "1 wrong: api")


def test_the_status_tells_again_from_fix(loaded: Consumer) -> None:
    status, text = failed("rows", "shop.none")
    assert status == 1
    assert "shop.none" in text
    for words in (("rows", "shop.orders"), ("pull", "--since", "now"), ("pull",), ("tail",)):
        assert failed(*words, "--tenant", "acne") == (1, "no tenant 7/acne; did you mean acme?")
    assert failed("pull", "--tenant", "zzz") == (1, "no tenant 7/zzz; the cluster has acme")
    with TiStream(loaded.url) as client, pytest.raises(UnknownName, match=r"no tenant 7/acne; did you mean acme\?"):
        client.tenant("7", "acne").databases()
    status, text = failed("rows", "shop.orders", "--url", f"http://127.0.0.1:{free_port()}")
    assert status == 75
    assert text.startswith("no answer from")


def test_the_example_of_the_page_runs(orders: list[Line], loaded: Consumer, tmp_path: Path) -> None:
    [example, *_] = re.findall(r"^```\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    added, doctor, pull, tail, diff = [shlex.split(line)[1:] for line in example.splitlines()]
    run(*[word.replace("http://127.0.0.1:8000", loaded.url) for word in added])
    run("context", "use", added[2])
    findings = json.loads(tried(*doctor, "-o", "json").stdout)["findings"]
    wrong = {one["what"] for one in findings if one["state"] == "wrong"}
    # Its recording has ended. Other tests of this process have had API servers, which are nodes that went away.
    assert {what for what in wrong if not what.startswith("api-")} == {"tenant 7/acme"}
    run(*pull)
    assert pulled(tmp_path / "out") == [(int(one["commit_ts"]), one["op"]) for one in orders]
    assert len(run(*tail).splitlines()) == 5
    assert run(*diff).startswith("@@ 2026-")


def test_the_recipes_make_the_table(loaded: Consumer, tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", RECIPES, re.DOTALL | re.MULTILINE)
    [shell] = [text for kind, text in blocks if not kind]
    [sql] = [text for kind, text in blocks if kind == "sql"]
    with TiStream(loaded.url) as client:
        orders = client.tenant("7", "acme").table("shop", "orders")
        wanted = {row.key["id"]: row.row for row in orders.at("now")}
        run(*shell.split()[1:])
        made = duckdb.sql(sql.replace("'changes/", f"'{tmp_path}/changes/")).fetchall()
        assert [str(row[0]) for row in made] == sorted(wanted, key=int)
        for _ in range(2):
            space: dict[str, Any] = {"orders": orders}
            for kind, text in blocks:
                if kind == "python":
                    exec(text, space)
            stored = {key: json.loads(text) for key, text in space["db"].execute("SELECT * FROM orders")}
            assert stored == wanted
        assert sorted(map(str, space["table"]["id"]), key=int) == sorted(wanted, key=int)


def test_a_command_imports_little(loaded: Consumer) -> None:
    """Most of a short command's time is what it imports: a larger HTTP client, asyncio and tables for terminals."""
    script = (
        "import sys; from tistream_client.cli.app import app; from tistream_client.cli.main import run\n"
        f"sys.argv = ['tistream', 'history', 'shop.orders', 'id=1', '--url', {loaded.url!r}, '--json',\n"
        "            '--cluster', '7', '--tenant', 'acme']\n"
        "try: run(lambda: app)\n"
        "finally: print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line)["commit_ts"] for line in done.stdout.splitlines())
    assert not {"httpx", "asyncio", "rich", "pyarrow", "numpy", "tistream"} & set(done.stderr.split())
