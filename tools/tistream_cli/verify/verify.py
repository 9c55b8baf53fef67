"""`tistream verify`: runs several consumers of one tenant, and checks their events by the rules of tistream_verify."""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from tistream.clock import Clock, SystemClock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.service.signals import stop_signals
from tistream_cli.verify.readers import PageReader, ScopeReader, StreamReader, TenantPager, Watched
from tistream_cli.verify.truth import TruthFile, TruthReader
from tistream_client.cli.api_client import ApiClient, changes_path
from tistream_client.cli.errors import LATER, CliError, NoVerdict
from tistream_client.core.errors import ApiError, Gone, UnknownName
from tistream_verify.lag import LONGEST_MS, Delays, LagSample
from tistream_verify.record import StreamRecord
from tistream_verify.validators import Validators

_SILENCE_SECONDS = 5.0  # read timeout; an endless stream sends a line at least once a second
_SAMPLE_SECONDS = 0.25
_LINE_MS = 5_000


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of a run. Without `duration_s` and `until_truth_end`, it lasts until SIGTERM or Ctrl-C."""

    url: str
    cluster: str
    tenant: str
    truth: Path | None = None
    start_ts: int | None = None
    duration_s: float | None = None
    until_truth_end: bool = False
    truth_begin_s: float = 15.0  # timeout for the first line of the truth
    truth_idle_s: float = 10.0  # the truth has ended if it has not grown for this time
    finish_s: float = 60.0  # timeout for receiving the upstream's changes after the end of the run
    begin_s: float = 60.0  # timeout for the tenant to become readable
    seed: int = 0
    scopes: int = 2
    cut_s: float = 5.0
    samples: Path | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class VerifyEnd:
    """The reasons why a comparison is incomplete. `unfinished`: the platform did not return the upstream's changes in
    time, which is a violation. `inconclusive`: the truth is missing or invalid, or the wait was interrupted."""

    unfinished: str | None = None
    inconclusive: str | None = None


@dataclass(slots=True)
class VerifyOutcome:
    """The result of a run: the report, the violations, and why the run was inconclusive, if it was."""

    report: dict[str, Any]
    violations: list[str] = field(default_factory=list)
    inconclusive: str | None = None

    @property
    def clean(self) -> bool:
        """Whether there are no violations, and everything was compared."""
        return not self.violations and self.inconclusive is None


def run_verify(options: VerifyOptions) -> None:
    """Run the verification and print the report. Exits with status 1 on violations. Raises NoVerdict if the run could
    not begin, or not everything was compared."""
    try:
        _judge(options)
    except CliError as error:
        raise NoVerdict(str(error)) from error


def _judge(options: VerifyOptions) -> None:
    _check_names(options)
    console = Console(file=sys.stderr)
    with stop_signals() as stop:
        outcome = Verification(options, SystemClock(), stop).run(console.print)
    if options.as_json:
        sys.stdout.buffer.write(orjson.dumps(outcome.report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    else:
        Console(file=sys.stdout).print(_table(outcome.report))
    for violation in outcome.violations:
        sys.stderr.write(f"VIOLATION {violation}\n")
    if outcome.inconclusive is not None:
        left = f"not all was compared: {outcome.inconclusive}"
        if not outcome.violations:
            raise CliError(left)
        sys.stderr.write(f"tistream: {left}\n")
    if outcome.violations:
        raise SystemExit(1)


def _check_names(options: VerifyOptions) -> None:
    """Check the options before the first request. Raises CliError."""
    try:
        TenantKey.parse(options.cluster, options.tenant)
        if options.samples is not None:
            options.samples.open("ab").close()
    except TiStreamError as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(f"--samples {options.samples} cannot be written: {error.strerror}") from error


class Verification:
    """Runs a verification: the threads of the consumers, and the loop that monitors them."""

    def __init__(self, options: VerifyOptions, clock: Clock, stop: threading.Event) -> None:
        self._options, self._clock, self._stop = options, clock, stop
        self._rng = random.Random(options.seed)
        self._samples: list[LagSample] = []
        self._lags = Delays()
        self._broken: list[str] = []

    def run(self, say: Callable[[str], None]) -> VerifyOutcome:
        """Run until the end that the options define. `say` is called with progress lines. Raises CliError if the truth
        file is invalid from the start, or if the tenant cannot be read."""
        options = self._options
        if options.truth is not None:
            TruthFile(options.truth, options.cluster, options.tenant).check_beginning()
        start_ts, from_beginning = self._begin(say)
        validators = Validators(
            start_ts, source="stream", from_beginning=from_beginning, with_truth=options.truth is not None
        )
        watched = Watched(
            options.cluster, options.tenant, start_ts, validators, StreamRecord(start_ts), threading.Event()
        )
        stream = StreamReader(self._client(), watched, self._clock, self._child_rng(), options.cut_s)
        pagers: list[PageReader] = [TenantPager(self._client(), watched, self._child_rng())]
        pagers += [ScopeReader(self._client(), watched, self._child_rng()) for _ in range(options.scopes)]
        truth = None
        if options.truth is not None:
            truth = TruthReader(options.truth, watched, self._clock, from_beginning=from_beginning)
        bodies = [stream.run, *(pager.run for pager in pagers), *([truth.run] if truth else [])]
        threads = [threading.Thread(target=self._guard, args=(body,), daemon=True) for body in bodies]
        for thread in threads:
            thread.start()
        end = self._watch(watched, truth, say)
        watched.stop.set()
        for thread in threads:
            thread.join(_SILENCE_SECONDS + 3)
        return self._outcome(watched, stream, pagers, end)

    def _guard(self, body: Callable[[], None]) -> None:
        """Run the body of a consumer's thread. If it raises an exception, end the run, and report the exception as a
        violation; otherwise a failed consumer would look like one that has found nothing."""
        try:
            body()
        except Exception:
            self._broken.append(traceback.format_exc())
            self._stop.set()

    def _client(self) -> ApiClient:
        return ApiClient(self._options.url, read_seconds=_SILENCE_SECONDS)

    def _child_rng(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    def _begin(self, say: Callable[[str], None]) -> tuple[int, bool]:
        """Wait until the tenant can be read. Returns the ts at which to start, and whether it is the tenant's
        beginning. Raises CliError if that takes longer than `begin_s`, or if the API refuses the read for good."""
        options, client = self._options, self._client()
        if options.start_ts is not None:
            return options.start_ts, False
        path = changes_path(options.cluster, options.tenant, None, None)
        said_ms: int | None = None
        deadline_ms = self._clock.monotonic_ms() + int(options.begin_s * 1000)
        while True:
            try:
                list(client.lines(path, {"start_ts": "0", "limit": "1"}))
                return 0, True
            except Gone as gone:
                return gone.earliest_ts or 0, True
            except (*LATER, UnknownName) as error:
                now_ms = self._clock.monotonic_ms()
                if now_ms > deadline_ms or self._stop.is_set():
                    raise CliError(
                        f"cannot read tenant {options.cluster}/{options.tenant} at {options.url}: {error}; see "
                        "`tistream tenant status`"
                    ) from error
                if said_ms is None or now_ms - said_ms >= _LINE_MS:
                    said_ms = now_ms
                    say(f"waiting for the tenant: {error}")
            except ApiError as error:
                raise CliError(
                    f"cannot read tenant {options.cluster}/{options.tenant} at {options.url}: {error}; see `tistream "
                    "tenant status`"
                ) from error
            self._stop.wait(0.3)

    def _watch(self, watched: Watched, truth: TruthReader | None, say: Callable[[str], None]) -> VerifyEnd:
        """Measure the lag and report progress, until the run ends. Returns what was not compared."""
        began_ms = said_ms = self._clock.monotonic_ms()
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._sample(watched)
            now_ms = self._clock.monotonic_ms()
            if now_ms - said_ms >= _LINE_MS:
                said_ms = now_ms
                say(self._line(watched))
                if truth is not None and (missing := truth.missing()) is not None:
                    say(f"waiting for the truth: {missing}")
            if self._is_over(now_ms - began_ms, now_ms, truth):
                break
        if truth is None:
            with watched.lock:
                moved = watched.record.resolved_ts > watched.start_ts
            return VerifyEnd(
                None if moved else f"nothing was received above {watched.start_ts}, so nothing was checked"
            )
        truth.finish()
        return self._finish(watched, truth, say)

    def _is_over(self, ran_ms: int, now_ms: int, truth: TruthReader | None) -> bool:
        options = self._options
        if options.duration_s is not None and ran_ms >= options.duration_s * 1000:
            return True
        if truth is None:
            return False
        if truth.refused is not None:
            return True
        if truth.missing() is not None:
            return now_ms - truth.began_ms >= options.truth_begin_s * 1000
        return options.until_truth_end and now_ms - truth.grown_ms >= options.truth_idle_s * 1000

    def _finish(self, watched: Watched, truth: TruthReader, say: Callable[[str], None]) -> VerifyEnd:
        """Wait until everything in the truth has been compared. The first signal ended the run; a second one ends this
        wait."""
        self._stop.clear()
        seconds, said = self._options.finish_s, False
        deadline_ms = self._clock.monotonic_ms() + int(seconds * 1000)
        while not self._broken:
            if truth.ended.is_set():
                if inconclusive := truth.refused or truth.missing() or _other_time(watched):
                    return VerifyEnd(inconclusive=inconclusive)
                with watched.lock:
                    if watched.validators.compared_ts >= watched.truth_ts:
                        return VerifyEnd()
                if not said:
                    said = True
                    say(f"waiting for the truth up to {watched.truth_ts}: {seconds:g} s at most, Ctrl-C ends it")
            cut = self._stop.wait(_SAMPLE_SECONDS)
            how_far = f"compared up to {watched.validators.compared_ts} only; the truth ends at {watched.truth_ts}"
            if cut and not self._broken:
                return VerifyEnd(inconclusive=f"{how_far}, and a signal ended the wait")
            if self._clock.monotonic_ms() >= deadline_ms:
                return VerifyEnd(unfinished=f"{how_far}, and {seconds:g} s have passed")
        return VerifyEnd()

    def _sample(self, watched: Watched) -> None:
        now_ms = self._clock.now_ms()
        with watched.lock:
            lag_ms = now_ms - physical_ms(watched.record.resolved_ts)
            sample = LagSample(now_ms, lag_ms, watched.record.end)
        self._samples.append(sample)
        self._lags.add(lag_ms)
        if self._options.samples is not None:
            line = {"at_ms": sample.at_ms, "lag_ms": sample.lag_ms, "events": sample.events}
            with self._options.samples.open("ab") as file:
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def _line(self, watched: Watched) -> str:
        last, before = self._samples[-1], self._samples[max(0, len(self._samples) - 1 - int(5 / _SAMPLE_SECONDS))]
        rate = 1000 * (last.events - before.events) / max(1, last.at_ms - before.at_ms)
        with watched.lock:
            truth = watched.validators.compared_lines
            found = watched.validators.found.counts.total()
        return (
            f"{last.events} events, {rate:.0f}/s, lag {last.lag_ms / 1000:.1f} s,"
            f" {truth} truth lines compared, {found} violations"
        )

    def _outcome(
        self,
        watched: Watched,
        stream: StreamReader,
        pagers: list[PageReader],
        end: VerifyEnd,
    ) -> VerifyOutcome:
        validators, delays = watched.validators, watched.delays
        violations = [str(violation) for violation in validators.violations]
        violations += [str(violation) for pager in pagers for violation in pager.found.kept]
        violations += [f"unfinished: {end.unfinished}"] if end.unfinished else []
        violations += [f"a reader failed: {trace}" for trace in self._broken]
        counts = validators.found.counts.copy()
        for pager in pagers:
            counts += pager.found.counts
        report: dict[str, Any] = {
            "clean": not violations and end.inconclusive is None,
            "violations": {str(rule): count for rule, count in sorted(counts.items())},
            "first_violations": violations[:20],
            "unfinished": end.unfinished or end.inconclusive,
            "rows": validators.rows,
            "ddls": validators.ddls,
            "truth_lines_compared": validators.compared_lines,
            "events_compared_with_truth": validators.compared_events,
            "old_rows_compared": validators.compared_before_after,
            "stream": {
                "answers": stream.stream.answers,
                "repeated_events": stream.stream.repeated,
                "refused": stream.attempts.refused,
            },
            "other_pulls": {
                "pages": sum(pager.pages for pager in pagers),
                "events": sum(pager.events for pager in pagers),
                "stretches_read_again": sum(pager.rereads for pager in pagers),
                "refused": sum(pager.attempts.refused for pager in pagers),
            },
            "event_delay_ms": _quantiles(delays),
            "resolved_lag_ms": _quantiles(self._lags),
        }
        return VerifyOutcome(report, violations, end.inconclusive)


def _other_time(watched: Watched) -> str | None:
    if watched.truth_ts >= watched.start_ts:
        return None
    return (
        f"the truth ends at {watched.truth_ts}, before {watched.start_ts}, the start of the pull: is it of another run?"
    )


def _quantiles(delays: Delays) -> dict[str, int | None]:
    """p50, p99 and maximum, in ms. A quantile of an hour or more is None, because longer delays are not measured."""
    known = {"p50": delays.quantile_ms(0.5), "p99": delays.quantile_ms(0.99)}
    return {**{name: ms if ms < LONGEST_MS else None for name, ms in known.items()}, "max": delays.max_ms}


def _table(report: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    for name, value in report.items():
        if name == "first_violations":
            continue
        table.add_row(name.replace("_", " "), _shown(value))
    return table


def _shown(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    shown = (f"{name.replace('_', ' ')} {'> 1 h' if number is None else number}" for name, number in value.items())
    return ", ".join(shown) or "none"
