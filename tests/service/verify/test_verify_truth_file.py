"""A truth that is missing, empty, garbage or another's: `tistream verify` says so at once and does not blame the
platform; a signal ends every wait."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.command import command
from support.lawful_events import SNAPSHOT_TS, LawfulEvents
from support.lying_api import LyingApi, served
from support.platform import COMMAND, free_port
from support.waiting import PATIENCE_S, in_time
from tistream.clock import SystemClock
from tistream_cli.verify.truth import TruthRefused
from tistream_cli.verify.verify import Verification, VerifyOptions, VerifyOutcome
from tistream_verify.fingerprint import TruthLine, TruthRun

NO_VERDICT = 3  # docs/verify.md; 1 is a violation
OWN = TruthRun("c", "t", 3, SNAPSHOT_TS)
LAWFUL = LawfulEvents(3, transactions=80)


@pytest.fixture
def url() -> Iterator[str]:
    with served(LyingApi(LAWFUL.copy())) as url:
        yield url


def write(path: Path, run: TruthRun | None, lines: list[TruthLine] | None = None) -> Path:
    first, *others = lines or LAWFUL.lines
    path.write_bytes(b"".join(line.encode() for line in [replace(first, run=run), *others]))
    return path


def verified(url: str, truth: Path, **more: object) -> VerifyOutcome:
    """What is compared at the end is waited for: a run that has nothing to wait for does not."""
    options = VerifyOptions(url, "c", "t", truth, duration_s=1, finish_s=2 * PATIENCE_S)
    return Verification(replace(options, **more), SystemClock(), threading.Event()).run(lambda _: None)  # type: ignore[arg-type]


def words(url: str, *more: object) -> list[str]:
    return [str(part) for part in ("verify", url, "--cluster", "c", "--tenant", "t", *more)]


def run(url: str, *more: object) -> subprocess.CompletedProcess[str]:
    return command(*words(url, *more))


@pytest.mark.parametrize("run_", [OWN, None])
def test_the_tenants_own_truth_is_taken_with_or_without_its_name(url: str, tmp_path: Path, run_: TruthRun) -> None:
    outcome = verified(url, write(tmp_path / "truth", run_))
    assert outcome.clean, (outcome.violations, outcome.inconclusive)
    assert outcome.report["truth_lines_compared"] > 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nonsense\n", ": line 1 is not a truth line"),
        (LAWFUL.lines[0].encode() + b'{"ts":"3"}\n', ": line 2 is not a truth line"),
        (LAWFUL.lines[1].encode() + LAWFUL.lines[0].encode(), "goes back in time at line 2"),
    ],
)
def test_garbage_is_told_as_garbage(url: str, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "truth").write_bytes(content)
    done = run(url, "--truth", tmp_path / "truth")  # neither --duration nor --until-truth-end
    assert done.returncode == NO_VERDICT
    assert said in done.stderr
    assert "VIOLATION" not in done.stderr
    assert "Decode" not in done.stderr


def test_another_tenants_truth_is_refused_before_anything_is_pulled(tmp_path: Path) -> None:
    truth = write(tmp_path / "truth", replace(OWN, tenant="other"))
    done = run(f"http://127.0.0.1:{free_port()}", "--truth", truth)
    assert done.returncode == NO_VERDICT
    assert "is of tenant c/other, not of c/t" in done.stderr
    assert "VIOLATION" not in done.stderr


def test_the_truth_of_a_later_run_is_refused(url: str, tmp_path: Path) -> None:
    later = replace(OWN, snapshot_ts=SNAPSHOT_TS + 5)
    outcome = verified(url, write(tmp_path / "truth", later, [replace(LAWFUL.lines[0], ts=SNAPSHOT_TS + 5)]))
    assert not outcome.clean
    assert "of another run" in str(outcome.inconclusive)
    assert outcome.violations == []


def test_the_truth_of_an_earlier_run_is_not_waited_for(url: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    outcome = verified(url, write(tmp_path / "truth", None, [TruthLine(5, 0, {})]))
    assert time.monotonic() - begun < PATIENCE_S
    assert "is it of another run?" in str(outcome.inconclusive)
    assert outcome.violations == []


def test_a_truth_that_is_written_anew_is_refused(url: str, tmp_path: Path) -> None:
    truth = tmp_path / "truth"

    def rewritten(seconds: float) -> VerifyOutcome:
        later = threading.Timer(seconds, lambda: write(truth, OWN, LAWFUL.lines[:1]))
        write(truth, OWN)
        later.start()
        outcome = verified(url, truth, duration_s=20 * seconds)
        later.join()
        return outcome

    in_time(rewritten, lambda outcome: "was rewritten" in str(outcome.inconclusive))


@pytest.mark.parametrize("content", [None, b""])
def test_a_truth_that_never_begins_ends_the_run(url: str, tmp_path: Path, content: bytes | None) -> None:
    truth = tmp_path / "truth"
    if content is not None:
        truth.write_bytes(content)
    begun = time.monotonic()
    outcome = verified(url, truth, duration_s=2 * PATIENCE_S, until_truth_end=True, truth_begin_s=1)
    assert time.monotonic() - begun < PATIENCE_S
    assert not outcome.clean
    assert str(truth) in str(outcome.inconclusive)
    assert outcome.violations == []


def test_a_truth_in_no_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TruthRefused, match="its folder does not exist"):
        verified(f"http://127.0.0.1:{free_port()}", tmp_path / "nowhere" / "truth")


def until(process: subprocess.Popen[str], said: str) -> None:
    """Read stderr up to a line that has `said`."""
    assert process.stderr is not None
    for line in process.stderr:
        if said in " ".join(line.split()):
            return
    raise AssertionError(f"it never said {said!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_the_end_of_the_truth(url: str, tmp_path: Path, number: signal.Signals) -> None:
    lines = [*LAWFUL.lines, replace(LAWFUL.lines[-1], ts=LAWFUL.lines[-1].ts + 10**9)]
    truth = write(tmp_path / "truth", OWN, lines)

    def rows(seconds: float) -> int:
        """That were seen by then: they are reported all the same."""
        watching = [COMMAND, *words(url, "--truth", truth, "--duration", seconds, "--json")]
        with subprocess.Popen(watching, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(process, "waiting for the truth up to")
                process.send_signal(number)
                out, error = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
        assert process.returncode == NO_VERDICT
        assert "a signal ended the wait" in error, "and not its time"
        assert "VIOLATION" not in error
        found: int = orjson.loads(out)["rows"]
        return found

    in_time(rows, lambda found: found > 100)


def test_waiting_for_a_tenant_is_said_and_can_be_ended() -> None:
    watching = [COMMAND, *words(f"http://127.0.0.1:{free_port()}")]
    with subprocess.Popen(watching, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(process, "waiting for the tenant")
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == NO_VERDICT
    assert ": no answer from" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        ("127.0.0.1:8000", [], "does not begin with http://"),
        ("http://", [], "names no host"),
        ("http://127.0.0.1:1", ["--until-truth-end"], "needs --truth"),
        ("http://127.0.0.1:1", ["--start-ts", "-1"], "--start-ts"),
        ("http://127.0.0.1:1", ["--start-ts", str(2**63)], "--start-ts"),
    ],
)
def test_wrong_usage_is_status_2(url: str, more: list[str], said: str) -> None:
    done = run(url, *more)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--samples", "/nowhere/samples"], "--samples /nowhere/samples"), (["--tenant", "a/../b"], "tenant_id 'a/../b'")],
)
def test_what_cannot_be_is_one_line(more: list[str], said: str) -> None:
    done = run("http://127.0.0.1:1", *more)
    assert done.returncode == NO_VERDICT
    assert done.stderr.startswith("tistream: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_violation_outranks_what_could_not_be_compared(tmp_path: Path) -> None:
    truth = tmp_path / "truth"

    def garbled(seconds: float) -> subprocess.CompletedProcess[str]:
        """The run ends when garbage is read: by then it must have seen the violation."""
        sound = write(truth, OWN).read_bytes()
        later = threading.Timer(3 * seconds, lambda: truth.write_bytes(sound + b"garbage\n"))
        with served(LyingApi(LAWFUL.copy(), "tells one twice")) as url:
            later.start()
            done = run(url, "--truth", truth, "--duration", 2 * PATIENCE_S)
        later.join()
        return done

    done = in_time(garbled, lambda done: done.returncode == 1)
    assert "VIOLATION twice" in done.stderr
    assert "not all was compared" in done.stderr


def test_delays_beyond_what_is_measured_are_shown_as_such(url: str, tmp_path: Path) -> None:
    truth = write(tmp_path / "truth", OWN)  # its ts lie decades back

    def shown(seconds: float) -> subprocess.CompletedProcess[str]:
        return run(url, "--truth", truth, "--duration", seconds)

    in_time(shown, lambda done: "p50 > 1 h, p99 > 1 h" in " ".join(done.stdout.split()))

    def reported(seconds: float) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(run(url, "--truth", truth, "--duration", seconds, "--json").stdout)
        return found

    report = in_time(reported, lambda found: found["rows"])
    assert report["event_delay_ms"]["p50"] is None
    assert report["event_delay_ms"]["max"] > 10**9
