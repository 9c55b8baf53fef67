from __future__ import annotations

import pytest
import typer

from tistream_client.cli.api_client import changes_path, split_lines, tenant_path
from tistream_client.cli.errors import NoAnswer
from tistream_client.cli.pull.format import PullFormat, PullRequest, check_raw, check_snapshot
from tistream_client.cli.pull.pull import PullProgress, is_over, page_parameters, waits_for

ROW = b'{"type":"row","op":"put","commit_ts":"5"}'
DDL = b'{"type":"ddl","commit_ts":"6"}'
RESOLVED = b'{"type":"resolved","resolved_ts":"7","cursor":"c7"}'
CONTINUE = b'{"type":"continue","cursor":"c8"}'


def _after(*lines: bytes) -> PullProgress:
    progress = PullProgress()
    for line in lines:
        progress.see(line)
    return progress


def test_progress_counts_and_keeps_the_last_cursor() -> None:
    progress = _after(ROW, DDL, RESOLVED, ROW, CONTINUE)
    assert (progress.rows, progress.ddls, progress.events) == (2, 1, 3)
    assert (progress.resolved_ts, progress.cursor, progress.last_type) == ("7", "c8", "continue")


@pytest.mark.parametrize(
    ("request_", "progress", "got_events", "over"),
    [
        (PullRequest("7", "a"), _after(ROW, RESOLVED), True, False),
        (PullRequest("7", "a"), _after(ROW, RESOLVED), False, True),
        (PullRequest("7", "a"), _after(ROW, CONTINUE), True, False),
        (PullRequest("7", "a", limit=1), _after(ROW, CONTINUE), True, True),
        (PullRequest("7", "a", limit=2), _after(ROW, RESOLVED), True, False),
        (PullRequest("7", "a", end_ts="8"), _after(RESOLVED), False, False),
        (PullRequest("7", "a", end_ts="7"), _after(ROW, RESOLVED), True, True),
        (PullRequest("7", "a", follow=True), _after(RESOLVED), False, False),
    ],
)
def test_when_a_pull_is_over(request_: PullRequest, progress: PullProgress, got_events: bool, over: bool) -> None:
    assert is_over(request_, progress, got_events=got_events) is over


def test_pages_begin_at_the_start_and_go_on_from_the_cursor() -> None:
    request = PullRequest("7", "a", limit=10_003)
    assert page_parameters(request, PullProgress(), "0") == {"start_ts": "0", "limit": "10000"}
    progress = PullProgress(rows=10_000, cursor="c")
    assert page_parameters(request, progress, "0") == {"cursor": "c", "limit": "3"}


def test_end_and_follow_are_handed_on() -> None:
    request, of = PullRequest("7", "a", end_ts="9"), {"start_ts": "1", "limit": "10000", "end_ts": "9"}
    assert page_parameters(request, PullProgress(), "1") == of
    assert page_parameters(request, PullProgress(waits=True), "1") == {**of, "wait_ms": "10000"}
    assert page_parameters(PullRequest("7", "a", follow=True), PullProgress(), "1") == {
        "start_ts": "1",
        "follow": "true",
    }


def test_an_answer_without_events_below_the_end_is_waited_behind() -> None:
    request, progress = PullRequest("7", "a", end_ts=str(7 << 18)), PullProgress()
    assert waits_for(request, progress, got_events=False) == (
        "for everything up to 1835008 (1970-01-01 00:00:00.007) (--until)"
    )
    assert progress.waits
    assert waits_for(request, progress, got_events=True) is None
    assert not progress.waits
    assert waits_for(PullRequest("7", "a", follow=True), progress, got_events=False) is None


BEGIN = b'{"type":"snapshot_begin","snapshot_ts":"7"}'
READ = b'{"type":"row","op":"read","commit_ts":"5"}'
END = b'{"type":"snapshot_end","snapshot_ts":"7"}'


def test_the_pages_of_a_snapshot_have_its_parameters_until_its_end() -> None:
    request = PullRequest("7", "a", end_ts="9", events="rows", snapshot="now")
    progress = PullProgress(snapshot="now")
    assert page_parameters(request, progress, "0") == {"snapshot": "now", "limit": "10000"}
    progress.see(BEGIN)
    progress.see(READ)
    assert page_parameters(request, progress, "0") == {"snapshot": "7", "limit": "10000"}, "not another snapshot"
    progress.see(CONTINUE)
    assert page_parameters(request, progress, "0") == {"cursor": "c8", "limit": "10000"}
    assert not is_over(request, progress, got_events=True)
    progress.see(END)
    progress.see(RESOLVED)
    after = {"cursor": "c7", "limit": "10000", "end_ts": "9", "events": "rows"}
    assert page_parameters(request, progress, "0") == after


def test_a_limit_counts_the_rows_of_a_snapshot() -> None:
    request = PullRequest("7", "a", limit=3, snapshot="now")
    progress = PullProgress(snapshot="now")
    for line in (BEGIN, READ, READ):
        progress.see(line)
    assert page_parameters(request, progress, "0") == {"snapshot": "7", "limit": "3"}, "the two come again"


def test_a_limit_does_not_count_the_events_that_come_again_after_a_cut() -> None:
    progress = PullProgress(rows=9_999, cursor="c", after_cursor=9_999)
    assert page_parameters(PullRequest("7", "a", limit=9_999), progress, "0") == {"cursor": "c", "limit": "9999"}
    assert page_parameters(PullRequest("7", "a", limit=10_002), progress, "0") == {"cursor": "c", "limit": "10000"}


@pytest.mark.parametrize(
    ("request_", "form", "squash"),
    [
        (PullRequest("7", "a", snapshot="now", start_ts="1"), PullFormat.NDJSON, False),
        (PullRequest("7", "a", snapshot="now", cursor="c"), PullFormat.NDJSON, False),
        (PullRequest("7", "a", snapshot="now"), PullFormat.ARROW, False),
        (PullRequest("7", "a", snapshot="now"), PullFormat.NDJSON, True),
    ],
)
def test_what_does_not_go_with_a_snapshot_is_refused(request_: PullRequest, form: PullFormat, squash: bool) -> None:
    with pytest.raises(typer.BadParameter):
        check_snapshot(request_, form, squash=squash)


def test_filters_are_handed_on_with_each_page() -> None:
    request = PullRequest("7", "a", columns="id", where="id > 1", tables="s.*", operations="insert", events="rows")
    chosen = {"columns": "id", "where": "id > 1", "tables": "s.*", "operations": "insert", "events": "rows"}
    assert page_parameters(request, PullProgress(), "1") == {"start_ts": "1", "limit": "10000", **chosen}
    assert page_parameters(request, PullProgress(cursor="c"), "1") == {"cursor": "c", "limit": "10000", **chosen}


def test_names_are_percent_encoded() -> None:
    assert tenant_path("7", "a/b", "status") == "/v1/clusters/7/tenants/a%2Fb/status"
    assert changes_path("7", "a", None, None) == "/v1/clusters/7/tenants/a/changes"
    assert changes_path("7", "a", "we`ird 名", "t?#") == (
        "/v1/clusters/7/tenants/a/databases/we%60ird%20%E5%90%8D/tables/t%3F%23/changes"
    )


@pytest.mark.parametrize("chunks", [[b"ab\ncd\n"], [b"a", b"b\nc", b"d\n"], [b"", b"ab", b"\n", b"cd", b"\n"]])
def test_lines_do_not_depend_on_chunks(chunks: list[bytes]) -> None:
    assert list(split_lines(iter(chunks))) == [b"ab", b"cd"]


def test_an_answer_that_ends_inside_a_line_is_cut_off() -> None:
    lines = split_lines(iter([b"ab\nc", b"d"]))
    assert next(lines) == b"ab"
    with pytest.raises(NoAnswer, match="ended inside a line"):
        next(lines)


def test_writes_of_rawkv_count_as_rows_and_keep_their_keyspace() -> None:
    request = PullRequest("7", "a", raw=True, keyspace=5)
    assert changes_path("7", "a", None, None, raw=True) == "/v1/clusters/7/tenants/a/raw/changes"
    progress = _after(b'{"type":"raw","op":"put","commit_ts":"5"}', CONTINUE)
    assert progress.rows == 1
    assert page_parameters(request, progress, "0") == {"cursor": "c8", "keyspace": "5", "limit": "10000"}


@pytest.mark.parametrize(
    "request_",
    [
        PullRequest("7", "a", keyspace=5),
        PullRequest("7", "a", raw=True, database="d"),
        PullRequest("7", "a", raw=True, events="rows"),
        PullRequest("7", "a", raw=True, snapshot="now"),
    ],
)
def test_options_of_tables_do_not_go_with_rawkv(request_: PullRequest) -> None:
    with pytest.raises(typer.BadParameter):
        check_raw(request_, PullFormat.NDJSON, squash=False)
