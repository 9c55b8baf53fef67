"""The progress bar of a pull."""

from __future__ import annotations

import io

import pytest

from tistream_client.cli.pull.progress import Bar, Seen, count_text, newest_ts, shown

NOW_MS = 1_795_183_380_000  # 2026-11-20T14:03:00Z


def ts(seconds_ago: int) -> int:
    return (NOW_MS - 1000 * seconds_ago) << 18


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [(0, "", "0 "), (999, "", "999 "), (1_200_000, "", "1.2 M"), (1023, "B", "1023 B"), (84 << 20, "B", "84.0 MiB")],
)
def test_numbers_have_a_suffix(count: int, unit: str, text: str) -> None:
    assert count_text(count, unit) == text


def test_the_bar_has_rows_bytes_the_position_and_the_lag() -> None:
    seen = Seen(rows=1_200_000, size=84 << 20, ts=ts(3600))
    assert shown(seen, 0, None, NOW_MS) == "1.2 M rows  84.0 MiB  at 2026-11-20 13:03:00 UTC  lag 60.0 min"


def test_between_a_beginning_and_an_end_it_shows_the_part() -> None:
    text = shown(Seen(5, 10, ts(3600)), ts(7200), ts(0), NOW_MS)
    assert text.startswith("━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌  50%  5 rows  10 B  at 2026-11-20 13:03:00")
    assert shown(Seen(), ts(7200), ts(0), NOW_MS).startswith("╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   0%  0 rows")


def test_the_position_is_that_of_a_row_without_parsing_it() -> None:
    assert newest_ts(b'{"type":"row","op":"put","commit_ts":"77","start_ts":"1"') == 77
    assert newest_ts(b'{"type":"resolved","resolved_ts":"9"}') == 0


def test_it_is_drawn_on_a_terminal_a_few_times_a_second() -> None:
    out, now = Terminal(), [NOW_MS]
    bar = Bar(None, None, out, lambda: now[0])
    for rows in range(1, 100):
        bar.seen.rows = rows
        bar.tick()
        now[0] += 10
    bar.close()
    assert out.getvalue().count("\r") == 6
    assert out.getvalue().endswith("99 rows  0 B\n")


def test_without_a_terminal_only_reasons_to_wait_are_printed() -> None:
    out = io.StringIO()
    bar = Bar(None, None, out)
    bar.tick()
    bar.say("no snapshot yet")
    bar.say("no snapshot yet")
    bar.say("for more")
    bar.close()
    assert out.getvalue() == "waiting: no snapshot yet\nwaiting: for more\n"
