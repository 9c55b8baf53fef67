"""`tistream verify` against APIs that lie over HTTP, each in its own way: what is sound passes, every lie is found."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from support.lawful_events import SNAPSHOT_TS, LawfulEvents
from support.lying_api import LyingApi, served
from support.platform import COMMAND
from support.waiting import in_time
from tistream.clock import SystemClock
from tistream.model.ts import physical_ms
from tistream_cli.verify.verify import Verification, VerifyOptions, VerifyOutcome


class ThenClock(SystemClock):
    """Now is when the events were made."""

    def now_ms(self) -> int:
        return physical_ms(SNAPSHOT_TS)


def _verified(tmp_path: Path, lie: str, seconds: float, **more: object) -> VerifyOutcome:
    lawful = LawfulEvents(7, transactions=100)
    truth = tmp_path / "truth"
    truth.write_bytes(b"".join(line.encode() for line in lawful.lines))
    with served(LyingApi(lawful.copy(), lie)) as url:
        options = VerifyOptions(url, "c", "t", truth, duration_s=seconds, finish_s=1, cut_s=seconds / 5)
        return Verification(replace(options, **more), ThenClock(), threading.Event()).run(lambda _: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("lie", ["", "busy"])
def test_a_sound_api_is_clean_even_if_it_is_busy(tmp_path: Path, lie: str) -> None:

    def sound(seconds: float) -> VerifyOutcome:
        outcome = _verified(tmp_path, lie, seconds, finish_s=20 * seconds)
        assert [one for one in outcome.violations if not one.startswith("unfinished")] == []
        return outcome

    def seen(outcome: VerifyOutcome) -> bool:
        report = outcome.report
        return outcome.clean and report["other_pulls"]["stretches_read_again"] > 2 and report["stream"]["answers"] > 2

    report = in_time(sound, seen, 1.5).report
    assert report["events_compared_with_truth"] == report["rows"] > 100


@pytest.mark.parametrize(
    ("lie", "rule"),
    [
        ("resumes too late", "reread"),
        ("loses one", "events-sum"),
        ("tells one twice", "twice"),
        ("another order when resumed", "reread"),
        ("tables leave one out", "scope"),
        ("no last line", "cut"),
        ("broken", "refused"),
    ],
)
def test_a_lie_is_found(tmp_path: Path, lie: str, rule: str) -> None:
    def judged(seconds: float) -> VerifyOutcome:
        return _verified(tmp_path, lie, seconds)

    outcome = in_time(judged, lambda outcome: rule in outcome.report["violations"], 1.5)
    assert not outcome.clean


def test_the_command_reports_and_ends_with_the_truth(tmp_path: Path) -> None:
    lawful = LawfulEvents(3, transactions=80)
    truth, samples = tmp_path / "truth", tmp_path / "samples"
    truth.write_bytes(b"".join(line.encode() for line in lawful.lines))

    def sampled(seconds: float, lie: str) -> subprocess.CompletedProcess[bytes]:
        with served(LyingApi(lawful.copy(), lie)) as url:
            command = [str(COMMAND), "verify", url, "--cluster", "c", "--tenant", "t", "--truth", str(truth)]
            options = ["--duration", str(seconds), "--json", "--samples", str(samples)]
            return subprocess.run([*command, *options], capture_output=True, check=False)

    def has_seen(_: object) -> bool:
        return bool(orjson.loads(samples.read_bytes().splitlines()[-1])["events"] > 0)

    for lie, status in (("", 0), ("loses one", 1)):
        done = in_time(lambda seconds, lie=lie: sampled(seconds, lie), has_seen)
        assert done.returncode == status, done.stderr
        report = orjson.loads(done.stdout)
        assert report["clean"] is (status == 0)
        assert (b"VIOLATION events-sum" in done.stderr) is (status == 1)


def test_truth_that_is_not_reached_is_no_success(tmp_path: Path) -> None:
    lawful = LawfulEvents(3, transactions=80)
    truth = tmp_path / "truth"
    last = lawful.lines[-1]
    lines = [*lawful.lines, replace(last, ts=last.ts + 10**9)]
    truth.write_bytes(b"".join(line.encode() for line in lines))

    def judged(seconds: float) -> VerifyOutcome:
        with served(LyingApi(lawful.copy())) as url:
            options = VerifyOptions(url, "c", "t", truth, duration_s=seconds, finish_s=seconds)
            outcome = Verification(options, SystemClock(), threading.Event()).run(lambda _: None)
        assert not outcome.clean
        return outcome

    in_time(judged, lambda outcome: "compared up to" in outcome.violations[0])


@pytest.mark.parametrize(("lie", "clean"), [("", True), ("refuses all", False)])
def test_what_was_never_told_anything_is_no_success(tmp_path: Path, lie: str, clean: bool) -> None:

    def judged(seconds: float) -> VerifyOutcome:
        return _verified(tmp_path, lie, seconds, truth=None)

    outcome = in_time(judged, lambda outcome: outcome.clean is clean, 1.5)
    assert any("nothing was checked" in violation for violation in outcome.violations) is not clean
