"""Runs a simulated cluster in real time: it stores its files and, if there is a platform, announces them. It does I/O
and decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import BinaryIO

from tistream import concurrency
from tistream.clock import Clock
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream_upstream.cluster import Cluster
from tistream_upstream.effects import AskCoverage, Effect, WriteTruth
from tistream_upstream.outside import Say, Talker, Uploader
from tistream_upstream.platform_api import PlatformApi
from tistream_upstream.progress import RunProgress
from tistream_verify.fingerprint import TruthLine, TruthRun
from tistream_verify.lag import Promise

_STEP_MS = 20
_STEP_MAX_MS = 250
_BEHIND_MS = 1_000  # a lag above which no transactions begin until the clock is reached
_BACKLOG_MAX = 256 << 20  # bytes waiting to be put, above which no transactions begin
_ASK_AGAIN_MS = 500
_END_MS = 60_000
_PUT_END_S = 60
_PROMISE_MS = 100


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run.

    `shed_ms`: ms in which the driver began no transactions, because it was behind; `unanswered`: requests for coverage
    (design.md 2) that the platform did not answer; `unput`: bytes that did not get into the object store.
    """

    end_ts: int
    shed_ms: int
    unanswered: int
    unput: int


class Driver:
    """One run of a cluster.

    The first line that is written to `truth` names `run`. `promises` gets up to ten lines a second with the ts up to
    which the stored files are complete. A tenant's resolved_ts that is lower than such a ts lags because of the
    platform, not because of the upstream.
    """

    def __init__(
        self,
        cluster: Cluster,
        objects: ObjectStore,
        api: PlatformApi | None,
        truth: BinaryIO | None,
        clock: Clock,
        say: Say,
        run: TruthRun | None = None,
        promises: BinaryIO | None = None,
    ) -> None:
        self._cluster = cluster
        self._truth = truth
        self._run_to_name = run
        self._clock = clock
        self._say = say
        self._api = api
        self._objects = objects
        self._promises = promises
        self._promised_ts = self._promised_at_ms = 0
        self._talker: Talker | None = None
        self._again: list[tuple[int, AskCoverage]] = []
        self._shed_ms = 0
        self._shown_ms = 0
        self._shown_rows = 0

    def run(self, stopping: Callable[[], bool], show: Callable[[RunProgress], None], show_ms: int) -> RunOutcome:
        """Put schema_snap, push changes until `stopping()` returns True, then end the open transactions and push the
        rest. If there is a platform, the tenant must exist.

        `stopping` is called between steps, `show` every `show_ms` milliseconds.
        """
        tenant = self._cluster.config.tenant
        self._objects.put(layout.schema_snap(tenant), self._cluster.schema_snap)
        if self._api is not None:
            self._talker = Talker(self._api, self._say)
        announce = self._talker.announce if self._talker else lambda _: None
        uploader = Uploader(self._objects, announce, self._say)
        begun_ms = self._shown_ms = self._clock.monotonic_ms()
        # The cluster follows the wall clock from now on, and catches up with the time since its construction.
        offset_ms = self._clock.now_ms() - begun_ms
        try:
            while not stopping():
                self._step(uploader, offset_ms)
                now_ms = self._clock.monotonic_ms()
                if now_ms - self._shown_ms >= show_ms:
                    show(self._progress(uploader, now_ms, begun_ms, offset_ms))
            return self._end(uploader, offset_ms)
        finally:
            uploader.stop()
            if self._talker is not None:
                self._talker.stop()

    def _step(self, uploader: Uploader, offset_ms: int) -> None:
        cluster = self._cluster
        now_ms = self._clock.monotonic_ms() + offset_ms
        behind = now_ms - cluster.now_ms
        shed = behind > _BEHIND_MS or uploader.waiting_bytes > _BACKLOG_MAX
        if shed:
            self._shed_ms += min(behind, _STEP_MAX_MS)
        cluster.hold_load(shed)
        self._take(uploader, cluster.advance(min(now_ms, cluster.now_ms + _STEP_MAX_MS)))
        self._answers()
        self._promise(now_ms)
        ahead_ms = _STEP_MS - (self._clock.monotonic_ms() + offset_ms - now_ms)
        if behind < _STEP_MAX_MS and ahead_ms > 0:
            concurrency.sleep(ahead_ms / 1000)

    def _take(self, uploader: Uploader, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, WriteTruth):
                self._write_truth(effect)
            elif isinstance(effect, AskCoverage):
                self._ask(effect)
            else:
                uploader.add(effect)

    def _write_truth(self, effect: WriteTruth) -> None:
        if self._truth is None:
            return
        line = effect.line
        if self._run_to_name is not None:
            line = replace(TruthLine.parse(line), run=self._run_to_name).encode()
            self._run_to_name = None
        self._truth.write(line)
        self._truth.flush()

    def _promise(self, now_ms: int) -> None:
        promised_ts = self._cluster.promised_ts
        if self._promises is None or promised_ts <= self._promised_ts or now_ms < self._promised_at_ms + _PROMISE_MS:
            return
        self._promised_ts, self._promised_at_ms = promised_ts, now_ms
        self._promises.write(Promise(now_ms, promised_ts).encode())
        self._promises.flush()

    def _ask(self, question: AskCoverage) -> None:
        assert self._talker is not None, "without a platform no push is lost"
        self._talker.ask(question)

    def _answers(self) -> None:
        if self._talker is None:
            return
        now_ms = self._clock.monotonic_ms()
        while self._talker.answers:
            question, slices = self._talker.answers.popleft()
            if not self._cluster.coverage(question.request, slices):
                self._again.append((now_ms + _ASK_AGAIN_MS, question))
        for due_ms, question in list(self._again):
            if due_ms <= now_ms:
                self._again.remove((due_ms, question))
                self._talker.ask(question)

    def _progress(self, uploader: Uploader, now_ms: int, begun_ms: int, offset_ms: int) -> RunProgress:
        totals = self._cluster.totals
        rate = (totals.file_rows - self._shown_rows) * 1000 / max(1, now_ms - self._shown_ms)
        self._shown_ms, self._shown_rows = now_ms, totals.file_rows
        behind = now_ms + offset_ms - self._cluster.now_ms
        return RunProgress(
            (now_ms - begun_ms) / 1000,
            rate,
            totals,
            self._talker.lag_seconds if self._talker else None,
            behind if behind > _BEHIND_MS else 0,
            uploader.waiting_bytes,
            platform=self._talker is not None,
        )

    def _end(self, uploader: Uploader, offset_ms: int) -> RunOutcome:
        """End open transactions, push the last watermarks, and write the last truth line."""
        cluster = self._cluster
        cluster.stop()
        deadline_ms = self._clock.monotonic_ms() + _END_MS
        while not cluster.quiet and self._clock.monotonic_ms() < deadline_ms:
            self._step(uploader, offset_ms)
        unanswered = len(cluster.agents.asked)
        end_ts = cluster.truth.ts
        if cluster.quiet:
            end_ts, effects = cluster.finish()
            self._take(uploader, effects)
        for _ in range(_PUT_END_S * 20):
            if uploader.idle:
                break
            concurrency.sleep(0.05)
        return RunOutcome(end_ts, self._shed_ms, unanswered, 0 if uploader.idle else max(1, uploader.waiting_bytes))


def say_on_stderr(text: str) -> None:
    """Write one line of text to stderr."""
    sys.stderr.write(f"tistream simulate: {text}\n")
    sys.stderr.flush()
