"""A demo repeats a request that a busy platform refuses, and gives up in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tistream.clock import ManualClock
from tistream_cli.platform.demo_platform import BUSY_SECONDS, patiently
from tistream_client.cli.errors import CliError, NoAnswer


def answering(*errors: CliError) -> Callable[[], str]:
    """Raises these errors, one at each call, and then answers."""
    left = list(errors)

    def ask() -> str:
        if left:
            raise left.pop(0)
        return "answered"

    return ask


def pausing(clock: ManualClock) -> Callable[[float], None]:
    return lambda seconds: clock.advance(int(seconds * 1_000))


def test_what_a_busy_platform_refuses_is_requested_again() -> None:
    clock = ManualClock()
    ask = answering(NoAnswer("no answer"), CliError("503", 75))
    assert patiently(ask, clock, pausing(clock)) == "answered"


def test_what_will_fail_again_is_not_repeated() -> None:
    clock = ManualClock()
    with pytest.raises(CliError, match="no such tenant"):
        patiently(answering(CliError("no such tenant")), clock, pausing(clock))
    assert clock.monotonic_ms() == ManualClock().monotonic_ms()


def test_a_platform_that_stays_busy_is_given_up() -> None:
    clock = ManualClock()
    began_ms = clock.monotonic_ms()
    with pytest.raises(NoAnswer):
        patiently(answering(*[NoAnswer("no answer")] * 100_000), clock, pausing(clock))
    assert clock.monotonic_ms() - began_ms == BUSY_SECONDS * 1_000
