"""`tistream verify`: several consumers of one tenant at once, judged by tistream.verify while the platform runs."""

from __future__ import annotations

import random
import signal
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

from tistream.cli.client import ApiClient, NoAnswer, changes_path
from tistream.cli.errors import CliError
from tistream.cli.verify_readers import PageReader, ScopeReader, StreamReader, TenantPager, TruthReader, Watched
from tistream.clock import Clock, SystemClock
from tistream.errors import Gone, RetryableError, TiStreamError, UnknownName
from tistream.model.ts import physical_ms
from tistream.verify.lag import Delays, LagSample
from tistream.verify.record import Record
from tistream.verify.validators import Validators

_SILENCE_SECONDS = 5.0  # an endless stream shows once a second that it lives
_SAMPLE_SECONDS = 0.25
_LINE_MS = 5_000


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What to watch and for how long. Without `duration_s` and `until_truth_end`: until SIGTERM or Ctrl-C."""

    url: str
    cluster: str
    tenant: str
    truth: Path | None = None
    start_ts: int | None = None
    duration_s: float | None = None
    until_truth_end: bool = False
    truth_idle_s: float = 10.0
    finish_s: float = 60.0  # for what was done upstream before the end to be told
    begin_s: float = 60.0  # for the tenant to be there
    seed: int = 0
    scopes: int = 2
    cut_s: float = 5.0
    samples: Path | None = None
    as_json: bool = False


@dataclass(slots=True)
class Outcome:
    """The end of a run."""

    report: dict[str, Any]
    violations: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Nothing was found, and everything that was to be compared was."""
        return not self.violations


def run_verify(options: VerifyOptions) -> None:
    """Watch, report, and exit: status 1 on any violation. Raises CliError when it cannot begin."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    console = Console(file=sys.stderr)
    outcome = Verification(options, SystemClock(), stop).run(console.print)
    if options.as_json:
        sys.stdout.buffer.write(orjson.dumps(outcome.report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    else:
        Console(file=sys.stdout).print(_table(outcome.report))
    for violation in outcome.violations:
        sys.stderr.write(f"VIOLATION {violation}\n")
    if not outcome.clean:
        raise SystemExit(1)


class Verification:
    """One run: threads that read, and the loop that watches them."""

    def __init__(self, options: VerifyOptions, clock: Clock, stop: threading.Event) -> None:
        self._options, self._clock, self._stop = options, clock, stop
        self._rng = random.Random(options.seed)
        self._samples: list[LagSample] = []
        self._lags = Delays()
        self._broken: list[str] = []

    def run(self, say: Callable[[str], None]) -> Outcome:
        """Until the end that the options name; `say` gets the live line."""
        options = self._options
        start_ts, from_beginning = self._begin()
        validators = Validators(
            start_ts, source="stream", from_beginning=from_beginning, with_truth=options.truth is not None
        )
        watched = Watched(options.cluster, options.tenant, start_ts, validators, Record(start_ts), threading.Event())
        stream = StreamReader(self._client(), watched, self._clock, self._child_rng(), options.cut_s)
        pagers: list[PageReader] = [TenantPager(self._client(), watched, self._child_rng())]
        pagers += [ScopeReader(self._client(), watched, self._child_rng()) for _ in range(options.scopes)]
        truth = TruthReader(options.truth, watched, self._clock) if options.truth is not None else None
        bodies = [stream.run, *(pager.run for pager in pagers), *([truth.run] if truth else [])]
        threads = [threading.Thread(target=self._guard, args=(body,), daemon=True) for body in bodies]
        for thread in threads:
            thread.start()
        unfinished = self._watch(watched, truth, say)
        watched.stop.set()
        for thread in threads:
            thread.join(_SILENCE_SECONDS + 3)
        return self._outcome(watched, stream, pagers, unfinished)

    def _guard(self, body: Callable[[], None]) -> None:
        """A reader that breaks must not look like one that found nothing."""
        try:
            body()
        except Exception:
            self._broken.append(traceback.format_exc())
            self._stop.set()

    def _client(self) -> ApiClient:
        return ApiClient(self._options.url, read_seconds=_SILENCE_SECONDS)

    def _child_rng(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    def _begin(self) -> tuple[int, bool]:
        """The ts to start from, and whether it is the tenant's beginning. Raises CliError."""
        options, client = self._options, self._client()
        if options.start_ts is not None:
            return options.start_ts, False
        path = changes_path(options.cluster, options.tenant, None, None)
        deadline_ms = self._clock.monotonic_ms() + int(options.begin_s * 1000)
        while True:
            try:
                list(client.lines(path, {"start_ts": "0", "limit": "1"}))
                return 0, True
            except Gone as gone:
                return int(str(gone.extra["earliest_ts"])), True
            except (NoAnswer, RetryableError, UnknownName) as error:
                if self._clock.monotonic_ms() > deadline_ms or self._stop.is_set():
                    raise CliError(f"cannot begin: {error}") from error
            except TiStreamError as error:
                raise CliError(f"cannot begin: {error}") from error
            self._stop.wait(0.3)

    def _watch(self, watched: Watched, truth: TruthReader | None, say: Callable[[str], None]) -> str | None:
        """Sample and report until the end; what is left to be told then, in words."""
        began_ms = said_ms = self._clock.monotonic_ms()
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._sample(watched)
            now_ms = self._clock.monotonic_ms()
            if now_ms - said_ms >= _LINE_MS:
                said_ms = now_ms
                say(self._line(watched))
            if self._is_over(now_ms - began_ms, now_ms, truth, watched):
                break
        if truth is None:
            with watched.lock:
                moved = watched.record.resolved_ts > watched.start_ts
            return None if moved else f"nothing was told above {watched.start_ts}: there was nothing to judge"
        truth.finish()
        return self._finish(watched, truth)

    def _is_over(self, ran_ms: int, now_ms: int, truth: TruthReader | None, watched: Watched) -> bool:
        options = self._options
        if options.duration_s is not None and ran_ms >= options.duration_s * 1000:
            return True
        if truth is None or not options.until_truth_end or not watched.truth_lines:
            return False
        return now_ms - truth.grown_ms >= options.truth_idle_s * 1000

    def _finish(self, watched: Watched, truth: TruthReader) -> str | None:
        deadline_ms = self._clock.monotonic_ms() + int(self._options.finish_s * 1000)
        pause = threading.Event()
        while self._clock.monotonic_ms() < deadline_ms:
            pause.wait(_SAMPLE_SECONDS)
            if truth.error is not None:
                return f"the truth cannot be read: {truth.error}"
            with watched.lock:
                reached = watched.truth_lines > 0 and watched.validators.compared_ts >= watched.truth_ts
            if reached:
                return None
        if not watched.truth_lines:
            return "no truth line was ever written"
        at = watched.validators.compared_ts
        return (
            f"compared up to {at} only; the truth goes to {watched.truth_ts}, and {self._options.finish_s:g} s passed"
        )

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
        unfinished: str | None,
    ) -> Outcome:
        validators, delays = watched.validators, watched.delays
        violations = [str(violation) for violation in validators.violations]
        violations += [str(violation) for pager in pagers for violation in pager.found.kept]
        violations += [f"unfinished: {unfinished}"] if unfinished else []
        violations += [f"a reader broke: {trace}" for trace in self._broken]
        counts = validators.found.counts.copy()
        for pager in pagers:
            counts += pager.found.counts
        report: dict[str, Any] = {
            "clean": not violations,
            "violations": {str(rule): count for rule, count in sorted(counts.items())},
            "first_violations": violations[:20],
            "unfinished": unfinished,
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
        return Outcome(report, violations)


def _quantiles(delays: Delays) -> dict[str, int]:
    return {"p50": delays.quantile_ms(0.5), "p99": delays.quantile_ms(0.99), "max": delays.max_ms}


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
    return ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in value.items()) or "none"
