"""What commands do with answers of a server that stops early, is older, or is no TiStream API server."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tistream_cli.app import app
from tistream_client.cli import main
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError
from tistream_client.cli.points.reads import Named, pages, versions
from tistream_client.cli.points.show import oldest_first
from tistream_client.cli.pull.directory import ToLines
from tistream_client.cli.pull.format import PullRequest
from tistream_client.cli.pull.pages import pull_pages
from tistream_client.cli.pull.progress import Bar
from tistream_client.cli.pull.pull import pull


class Text(NamedTuple):
    """An answer, of which the last `missing` bytes do not arrive."""

    status: int
    kind: str
    body: str
    missing: int = 0


class Canned(ThreadingHTTPServer):
    """Gives `answers` in turn, and the last one again and again. `asked`: the URLs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Text] = []
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def parameters(self) -> list[dict[str, str]]:
        return [{name: one for name, (one,) in parse_qs(urlsplit(url).query).items()} for url in self.asked]


class _Handler(BaseHTTPRequestHandler):
    server: Canned

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        body = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("content-type", answer.kind)
        self.send_header("content-length", str(len(body) + answer.missing))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def canned() -> Iterator[Canned]:
    with Canned() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def lines(*found: dict[str, object], missing: int = 0) -> Text:
    body = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in found)
    return Text(200, "application/x-ndjson", body, missing)


BEGIN, END = ({"type": f"snapshot_{name}", "snapshot_ts": "7"} for name in ("begin", "end"))
READ = [{"type": "row", "op": "read", "n": number} for number in range(3)]
RESOLVED = {"type": "resolved", "resolved_ts": "7", "cursor": "c7"}
LAST = {"type": "resolved", "resolved_ts": "9", "cursor": "c9"}


@pytest.mark.parametrize("rows", [READ, []])
def test_a_snapshot_that_is_cut_at_its_end_is_there_once(rows: list[dict[str, object]], canned: Canned) -> None:
    canned.answers = [lines(BEGIN, *rows, END, missing=9), lines(BEGIN, *rows, END, RESOLVED), lines(LAST)]
    told = []
    refused = Text(503, "application/problem+json", json.dumps({"detail": "busy", "status": 503}))
    canned.answers.insert(1, refused)
    request = PullRequest("7", "a", follow=True, snapshot="now")
    for line, _ in pull(ApiClient(canned.url), request, sleep=lambda _: None):
        told.append(json.loads(line))
        if told[-1] == LAST:
            break
    assert told == [BEGIN, *rows, END, RESOLVED, LAST]
    assert [one.get("snapshot") for one in canned.parameters()] == ["now", "7", "7", None]
    assert canned.parameters()[-1]["cursor"] == "c7"


@pytest.mark.parametrize(
    ("start", "end"),
    [("2026-11-21T12:00:00+02:00", "2026-11-21T11:00:00Z"), ("2026-11-21T10:00", "2026-11-21T11:00")],
)
def test_hours_of_usage_are_in_the_zone_that_is_given(start: str, end: str, canned: Canned) -> None:
    canned.answers = [Text(200, "application/json", '{"hours": [], "total": {}}')]
    words = ["--cluster", "7", "--tenant", "acme", "--from", start, "--to", end, "--json", "--url", canned.url]
    assert CliRunner().invoke(app, ["tenant", "usage", *words]).exit_code == 0
    assert canned.parameters() == [{"from": "1795255200000", "to": "1795258800000"}]


def pulled(canned: Canned, out: Path, *words: str) -> Result:
    of = ["--cluster", "7", "--tenant", "acme", "--url", canned.url]
    return CliRunner().invoke(app, ["pull", *of, "-o", str(out), *words])


def test_a_directory_has_one_pull_at_a_time(canned: Canned, tmp_path: Path) -> None:
    canned.answers = [lines(LAST)]
    first = ToLines(tmp_path, PullRequest("7", "acme"))
    refused = pulled(canned, tmp_path).exception
    assert isinstance(refused, CliError)
    assert (refused.status, "another pull writes into" in str(refused)) == (75, True)
    first.close()
    (tmp_path / ".end.json.part").write_bytes(b"{")
    assert pulled(canned, tmp_path).exit_code == 0, "what a killed pull left over is in no one's way"


@pytest.mark.parametrize("begin", [("--since", "15m"), ("--cursor", "c1")])
def test_a_pull_that_was_killed_before_its_first_page_begins_where_it_began(
    begin: tuple[str, str], canned: Canned, tmp_path: Path
) -> None:
    canned.answers = [lines({"type": "row"}, missing=9)]
    assert isinstance(pulled(canned, tmp_path, *begin).exception, CliError)
    canned.answers = [lines(LAST)]
    assert pulled(canned, tmp_path, *begin).exit_code == 0
    first, second = canned.parameters()
    assert first == second


def test_a_pull_of_which_nothing_came_leaves_its_directory_to_another_request(canned: Canned, tmp_path: Path) -> None:
    canned.answers = [lines({"type": "row"}, missing=9)]
    assert isinstance(pulled(canned, tmp_path, "--since", "1d").exception, CliError)
    canned.answers = [lines(LAST)]
    assert pulled(canned, tmp_path, "--since", "2d").exit_code == 0
    assert isinstance(pulled(canned, tmp_path, "--since", "3d").exception, CliError), "a page of the other is there"


def test_a_complete_directory_is_complete_however_late_it_is_asked_again(canned: Canned, tmp_path: Path) -> None:
    until = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    canned.answers = [lines({**LAST, "resolved_ts": str(1 << 62)})]
    assert pulled(canned, tmp_path, "--since", "1d", "--until", until).exit_code == 0
    stored = json.loads((tmp_path / "end.json").read_text())
    stored["asked"]["since"] = "0s"
    (tmp_path / "end.json").write_text(json.dumps(stored))
    late = "2001-01-01T00:00:00Z"
    assert pulled(canned, tmp_path, "--since", "0s", "--until", late).exit_code == 0, "--since is not placed anew"
    assert canned.parameters()[-1]["cursor"] == "c9"


def test_a_directory_that_cannot_be_written_is_an_error_of_one_line(
    canned: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    of = ["--cluster", "7", "--tenant", "acme", "--url", canned.url]
    monkeypatch.setattr("sys.argv", ["tistream", "pull", *of, "-o", str(tmp_path / "file" / "below")])
    with pytest.raises(SystemExit) as ended:
        main.run(lambda: app)
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("tistream: [Errno 20] Not a directory")


@pytest.mark.parametrize(
    "words",
    [
        ["pull", "--since", "1d"],
        ["pull", "--since", "1d", "--format", "arrow", "--events", "all"],
        ["rows", "shop.orders"],
        ["tail"],
        ["doctor"],
    ],
)
def test_a_page_of_a_proxy_is_an_error_of_one_line(words: list[str], canned: Canned) -> None:
    canned.answers = [Text(200, "text/html", "<html>log in</html>")]
    of = ["--cluster", "7", "--tenant", "acme", "--url", canned.url]
    refused = CliRunner().invoke(app, [*words, *of])
    assert isinstance(refused.exception, CliError), refused
    shown = refused.output + str(refused.exception)
    assert "is --url that of a TiStream API server" in shown


def test_a_tenant_that_is_not_there_is_told_though_no_list_is(canned: Canned) -> None:
    unknown = Text(404, "application/problem+json", json.dumps({"detail": "no tenant 7/acme", "status": 404}))
    for listed in ("<html>log in</html>", '{"tenants": 7}'):
        canned.answers = [unknown, Text(200, "application/json", listed)]
        with pytest.raises(CliError, match=r"no tenant 7/acme$"):
            ApiClient(canned.url).call("GET", "/v1/clusters/7/tenants/acme/status")


def test_a_doctor_says_that_the_token_is_wrong_and_no_more(canned: Canned) -> None:
    health = Text(200, "application/json", '{"status": "ok", "version": "0.1.0"}')
    refused = Text(401, "application/problem+json", '{"type": "tistream:unauthenticated", "detail": "it has expired"}')
    canned.answers = [health, health, refused]
    words = ["doctor", "--cluster", "7", "--tenant", "acme", "--url", canned.url]
    found = CliRunner().invoke(app, words)
    assert str(found.exception) == "1 wrong: token"
    assert ["wrong", "token", "it", "has", "expired"] in [line.split() for line in found.output.splitlines()]
    assert "token: `tistream --token-file FILE doctor` or TISTREAM_TOKEN_FILE names a file with a valid token" in (
        found.output
    )


ROWS: list[dict[str, object]] = [{"type": "row", "op": "put", "n": number} for number in range(3)]


@pytest.mark.parametrize("missing", [0, 9])
def test_an_answer_that_lacks_its_last_line_alone_is_asked_for_again(missing: int, canned: Canned) -> None:
    canned.answers = [lines(*ROWS, missing=missing), lines(*ROWS, RESOLVED), lines(ROWS[0], LAST), lines(LAST)]
    found = pull(ApiClient(canned.url), PullRequest("7", "a", start_ts="1"), sleep=lambda _: None)
    assert [json.loads(line) for line, _ in found] == [*ROWS, RESOLVED, ROWS[0], LAST, LAST]
    assert [one.get("cursor") for one in canned.parameters()] == [None, None, "c7", "c9"]


def test_a_page_that_is_cut_off_or_refused_for_now_is_asked_for_again(canned: Canned, tmp_path: Path) -> None:
    busy = Text(503, "application/problem+json", json.dumps({"detail": "busy", "status": 503}))
    canned.answers = [lines(*ROWS, RESOLVED), lines(ROWS[0], LAST, missing=9), busy, lines(ROWS[0], LAST), lines(LAST)]
    request, waits, out = PullRequest("7", "a", start_ts="1"), list[float](), io.StringIO()
    pull_pages(ApiClient(canned.url), request, ToLines(tmp_path, request), Bar(None, None, out), waits.append)
    kept = [json.loads(line) for path in sorted(tmp_path.glob("*.ndjson")) for line in path.read_text().splitlines()]
    assert kept == [*ROWS, ROWS[0]]
    assert waits == [0.5, 1]
    assert [line.split(" ")[0] for line in out.getvalue().splitlines()] == ["waiting:", "waiting:"]


BUSY = Text(503, "application/problem+json", json.dumps({"detail": "busy", "status": 503}))
MORE = {"type": "end", "ts": "7", "cursor": "p1"}  # of rows
DONE = {"type": "end", "ts": "7", "cursor": None}


@pytest.mark.parametrize(("more", "last"), [(MORE, DONE), ({"type": "continue", "cursor": "p1"}, LAST)])
def test_rows_and_net_changes_go_on_where_they_were_cut_off(
    more: dict[str, object], last: dict[str, object], canned: Canned
) -> None:
    whole = [lines(*ROWS, more), lines(ROWS[0], last)]
    canned.answers = [
        lines(*ROWS, missing=9),
        BUSY,
        whole[0],
        lines(ROWS[0]),
        lines(ROWS[0], last, missing=9),
        whole[1],
    ]
    waits: list[float] = []
    found = pages(ApiClient(canned.url), "/rows", {"ts": "now"}, {"where": "1"}, None, waits.append)
    assert list(found) == [*ROWS, ROWS[0], last]
    assert [(one.get("ts"), one.get("cursor"), one["where"]) for one in canned.parameters()] == [
        *[("now", None, "1")] * 3, *[(None, "p1", "1")] * 3,
    ]  # fmt: skip
    assert waits == [0.5, 1, 0.5, 1], "a page that is complete begins a new minute"


def test_rows_that_give_up_say_where_to_go_on(canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    canned.answers = [lines(*ROWS, MORE), lines(ROWS[0], missing=9), BUSY]
    waits: list[float] = []
    found = pages(ApiClient(canned.url), "/rows", {"ts": "now"}, {}, None, waits.append)
    assert [next(found) for _ in ROWS] == ROWS
    with pytest.raises(CliError) as ended:  # of a page that is not complete nothing is written
        next(found)
    assert sum(waits) > 50
    assert (ended.value.status, str(ended.value)) == (75, "/rows: busy; to continue: --cursor p1")
    waited = capsys.readouterr().err
    assert "waiting: /rows: busy\n" in waited
    assert "same command" not in waited, "which would begin again"
    canned.answers = [BUSY]
    refused = CliRunner().invoke(
        app, ["rows", "shop.orders", "--cluster", "7", "--tenant", "acme", "--url", canned.url]
    )
    assert str(refused.exception).endswith("busy; run the same command again later"), "nothing had arrived"


def versions_of(*stamps: int, next_to: str | None = None, missing: int = 0) -> Text:
    found = [
        {"commit_ts": str(ts), "start_ts": str(ts), "op": "put", "row": {"id": "1"}, "old_row": None} for ts in stamps
    ]
    return Text(200, "application/json", json.dumps({"versions": found, "next_to": next_to}), missing)


HISTORY = ["shop.orders", "--cluster", "7", "--tenant", "acme"]


def test_a_history_goes_on_where_it_was_refused(canned: Canned) -> None:
    canned.answers = [versions_of(9, 8, next_to="7"), BUSY, versions_of(7, missing=9), versions_of(7, 6)]
    waits: list[float] = []
    named = Named("7", "acme", "shop", "orders")
    found = versions(ApiClient(canned.url), named, {"key": "{}", "to": "now"}, 100, waits.append)
    assert [int(one["commit_ts"]) for one in found] == [9, 8, 7, 6]
    assert [(one["to"], one["limit"]) for one in canned.parameters()] == [("now", "100"), *[("7", "98")] * 3]
    assert waits == [0.5, 1]


@pytest.mark.parametrize("words", [["history", "id=1"], ["diff", "--key", "id=1"]])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_history_that_is_refused_shows_what_arrived_and_says_where_to_go_on(
    words: list[str], form: list[str], canned: Canned
) -> None:
    broken = Text(400, "application/problem+json", json.dumps({"detail": "no such key", "status": 400}))
    command = [words[0], HISTORY[0], *words[1:], *HISTORY[1:], *form, "--url", canned.url]
    canned.answers = [versions_of(9, 8, next_to="7"), broken]
    refused = CliRunner().invoke(app, command)
    assert "no such key" in str(refused.exception)
    assert refused.stdout.count("1970-01-01") == 2 or refused.stdout.count('"commit_ts"') == 2
    canned.answers = [broken]
    assert CliRunner().invoke(app, command).stdout == "", "nothing had arrived"


def interrupt(_seconds: float) -> None:
    raise KeyboardInterrupt


def test_a_read_that_is_interrupted_while_it_waits_says_where_to_go_on(canned: Canned) -> None:
    client, named = ApiClient(canned.url), Named("7", "acme", "shop", "orders")
    for first, option, read in (
        (lines(*ROWS, MORE), "--cursor p1", pages(client, "/rows", {"ts": "now"}, {}, None, interrupt)),
        (versions_of(9, 8, next_to="7"), "--until 7", versions(client, named, {"key": "{}"}, 20_000, interrupt)),
    ):
        canned.answers = [first, BUSY]
        shown: list[object] = []
        with pytest.raises(CliError) as ended:
            shown.extend(oldest_first(read))
        assert (ended.value.status, str(ended.value)) == (130, f"interrupted; to continue: {option}")
        assert len(shown) == first.body.count('"op"')


def test_a_diff_goes_on_from_the_cursor_that_it_names(canned: Canned) -> None:
    canned.answers = [lines({"type": "end", "from": "1", "to": "7", "cursor": None})]
    words = ["diff", "shop.orders", "--cluster", "7", "--tenant", "acme", "--url", canned.url, "--cursor", "p1"]
    assert CliRunner().invoke(app, words).exit_code == 0
    [sent] = canned.parameters()
    assert (sent["cursor"], sent.keys() & {"from", "to"}) == ("p1", set())
    assert CliRunner().invoke(app, [*words, "--since", "1h"]).exit_code == 2


def test_a_diff_since_the_earliest_ts_begins_where_retention_does(canned: Canned) -> None:
    gone = {"type": "tistream:gone", "status": 410, "detail": "too old", "earliest_ts": "77"}
    end: dict[str, object] = {"type": "end", "from": "77", "to": "80", "cursor": None}
    canned.answers = [Text(410, "application/problem+json", json.dumps(gone)), lines(end)]
    words = ["diff", "shop.orders", "--cluster", "7", "--tenant", "acme", "--url", canned.url, "--since", "earliest"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert [one.get("from") for one in canned.parameters()] == [None, "77"]


def test_a_transaction_without_its_last_line_is_not_complete(canned: Canned) -> None:
    canned.answers = [lines(*ROWS)]
    words = ["txn", "5", "-o", "json", "--cluster", "7", "--tenant", "acme", "--url", canned.url]
    found = CliRunner().invoke(app, words).exception
    assert isinstance(found, CliError)
    assert (found.status, "ended before its last line" in str(found)) == (75, True)


@pytest.mark.parametrize("directory", [False, True])
def test_a_pull_says_what_it_waits_for(directory: bool, canned: Canned, tmp_path: Path) -> None:
    canned.answers = [lines({**LAST, "resolved_ts": "5"}), lines({**LAST, "resolved_ts": "5"}), lines(LAST)]
    words = ["pull", "--since", "1", "--until", "9", "--cluster", "7", "--tenant", "acme", "--url", canned.url]
    found = CliRunner().invoke(app, [*words, *(["-o", str(tmp_path / "out")] if directory else [])])
    assert found.exit_code == 0
    assert found.stderr == "waiting: for everything up to 9 (1970-01-01 00:00:00.000) (--until)\n"
    assert [one.get("wait_ms") for one in canned.parameters()] == [None, "10000", "10000"]


def test_a_pull_from_a_cursor_into_a_directory_is_continued_by_the_same_command(canned: Canned, tmp_path: Path) -> None:
    canned.answers = [lines(LAST)]
    for _ in range(2):
        assert pulled(canned, tmp_path, "--cursor", "c1").exit_code == 0
    assert pulled(canned, tmp_path).exit_code == 0
    assert [one["cursor"] for one in canned.parameters()] == ["c1", "c9", "c9"]
    for other in (("--cursor", "c2"), ("--cursor", "c9"), ("--since", "1d")):
        assert "repeat --since or --cursor as it was" in str(pulled(canned, tmp_path, *other).exception)


def test_a_directory_below_retention_needs_another_one(canned: Canned, tmp_path: Path) -> None:
    canned.answers = [lines(LAST)]
    assert pulled(canned, tmp_path, "--since", "1d").exit_code == 0
    gone = {"type": "tistream:gone", "status": 410, "detail": "too old", "earliest_ts": "77"}
    canned.answers = [Text(410, "application/problem+json", json.dumps(gone))]
    text = str(pulled(canned, tmp_path, "--since", "1d").exception)
    assert text.startswith("too old; begin at --since 77 (1970")
    assert text.endswith("or later, into an empty directory")


def test_net_changes_since_the_earliest_ts_begin_where_retention_does(canned: Canned) -> None:
    gone = {"type": "tistream:gone", "status": 410, "detail": "too old", "earliest_ts": "77"}
    canned.answers = [Text(410, "application/problem+json", json.dumps(gone)), lines(*ROWS, LAST)]
    words = ["pull", "--squash", "--since", "earliest", "--cluster", "7", "--tenant", "acme", "--url", canned.url]
    found = CliRunner().invoke(app, words)
    assert [json.loads(line) for line in found.stdout.splitlines()] == [*ROWS, LAST]
    assert [one["start_ts"] for one in canned.parameters()] == ["0", "77"]
    canned.answers = [Text(410, "application/problem+json", json.dumps(gone))]
    words[3] = "1d"
    assert "begin at --since 77" in str(CliRunner().invoke(app, words).exception)
