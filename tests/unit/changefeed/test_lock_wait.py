"""How long a DDL of a large table waits for a lock on a MySQL server."""

from __future__ import annotations

import pytest

from tistream_changefeed.sinks.mysql.lock_wait import LockWait

WAITS = "Waiting for table metadata lock"


def test_a_ddl_that_has_waited_from_its_beginning_on_is_ended() -> None:
    wait = LockWait(3)
    assert [(wait.seen(WAITS), wait.over) for _ in range(3)] == [(True, False), (True, False), (True, True)]


@pytest.mark.parametrize("state", ["copy to tmp table", "altering table", "setup"])
def test_a_ddl_that_was_seen_at_work_is_not_ended(state: str) -> None:
    wait = LockWait(1)
    assert (wait.seen(state), wait.over) == (False, False)
    assert (wait.seen(WAITS), wait.over) == (True, False)


@pytest.mark.parametrize("state", [None, "", "starting", "Opening tables", "creating table", "After create"])
def test_a_ddl_that_has_not_got_its_lock_yet_is_not_at_work(state: str | None) -> None:
    wait = LockWait(2)
    assert [(wait.seen(one), wait.over) for one in (state, state, WAITS)] == [*[(False, False)] * 2, (True, False)]
    assert (wait.seen(WAITS), wait.over) == (True, True)
