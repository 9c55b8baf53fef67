"""Commands that end in order at a signal: afterwards a signal does what it did before."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tistream.service.signals import stop_signals
from tistream_cli.verify.verify import VerifyOptions, run_verify
from tistream_client.cli.errors import NoVerdict

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_sets_the_event_and_the_handlers_from_before_come_back(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in NUMBERS]
    with stop_signals() as stopped:
        assert not stopped.is_set()
        signal.raise_signal(number)
        assert stopped.is_set()
    assert [signal.getsignal(one) for one in NUMBERS] == before


def test_a_verification_that_cannot_begin_leaves_the_handlers_as_they_were(tmp_path: Path) -> None:
    before = [signal.getsignal(one) for one in NUMBERS]
    with pytest.raises(NoVerdict, match="its folder does not exist"):
        run_verify(VerifyOptions("http://127.0.0.1:1", "c", "t", truth=tmp_path / "none" / "truth"))
    assert [signal.getsignal(one) for one in NUMBERS] == before
