"""When a pull asks again after an answer that was cut off or refused for now."""

from __future__ import annotations

from tistream_client.cli.again import Patience, given_up, waited_for
from tistream_client.cli.errors import AGAIN, FIX, CliError, NoAnswer, failed
from tistream_client.core.errors import api_error

CUT = NoAnswer("no answer from http://h")


def test_waits_double_up_to_a_minute_in_all() -> None:
    patience, waits = Patience(follow=False), []
    while (seconds := patience.seconds(CUT, 3, "c")) is not None:
        waits.append(seconds)
    assert waits == [0.5, 1, 2, 4, 8, 10, 10, 10, 10]


def test_a_new_event_or_cursor_begins_a_new_minute() -> None:
    patience = Patience(follow=False)
    assert [patience.seconds(CUT, *at) for at in ((0, None), (0, None), (1, None), (1, "c"), (1, "c"))] == [
        0.5, 1, 0.5, 0.5, 1,
    ]  # fmt: skip


def test_the_server_says_how_long() -> None:
    patience = Patience(follow=False)
    busy = api_error("/x", 429, {"detail": "too many"}, "40")
    assert patience.seconds(busy, 1, None) == 40
    assert patience.seconds(busy, 1, None) is None, "80 s are more than a minute"


def test_what_the_user_has_to_change_is_not_tried_again() -> None:
    assert Patience(follow=False).seconds(NoAnswer("unknown authority", FIX), 1, None) is None


def test_a_pull_that_follows_never_gives_up() -> None:
    patience = Patience(follow=True)
    assert {patience.seconds(CUT, 0, None) for _ in range(500)} == {1}


def test_the_error_says_how_to_continue() -> None:
    assert given_up(CUT, None, 0) is CUT, "nothing was written, or the same command continues"
    assert str(given_up(CUT, None, 3)) == "no answer from http://h; the first 3 events are written"
    found = given_up(CUT, "c9", 0)
    assert (str(found), found.status) == ("no answer from http://h; to continue: --cursor c9", AGAIN)
    refused = given_up(api_error("/x", 503, {"detail": "down"}, None), "c9", 2)
    assert isinstance(refused, CliError)
    assert refused.status == AGAIN
    assert str(refused) == "/x: down; to continue: --cursor c9, of whose events the first 2 are written"
    busy = given_up(api_error("/x", 429, {"detail": "too many"}, "40"), "c9", 0)
    assert str(busy) == "/x: too many; to continue after 40 s: --cursor c9", "the same command would begin again"
    assert "run the same command again after 40 s" in str(given_up(api_error("/x", 429, {}, "40"), None, 0))


def test_a_read_that_waits_gives_no_advice() -> None:
    """It asks again by itself. What it says at its end is the one way to continue."""
    busy = api_error("/x", 429, {"detail": "too many"}, "40")
    assert waited_for(busy) == waited_for(failed(busy)) == "/x: too many"
    assert waited_for(CUT) == "no answer from http://h"


def test_a_directory_is_continued_by_the_same_command() -> None:
    cut = NoAnswer("the answer is truncated")
    again = given_up(cut, None, 0, same_command=True)
    assert (str(again), again.status) == ("the answer is truncated; run the same command again", AGAIN)
    unknown = NoAnswer("unknown authority", FIX)
    assert given_up(unknown, None, 0, same_command=True) is unknown
    busy = given_up(api_error("/x", 429, {"detail": "too many"}, "40"), None, 0, same_command=True)
    assert str(busy).count("the same command again") == 1
