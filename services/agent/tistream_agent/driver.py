"""The loop of one territory, the span of keys that one agent reads. It passes events from threads to the state machine,
and commands of the state machine to threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol

from tistream.clock import Clock
from tistream.errors import TiStreamError
from tistream_agent.core import steps
from tistream_agent.core.steps import Command, Event
from tistream_agent.inbox import Inbox
from tistream_agent.metrics import AgentMetrics
from tistream_agent.outbox import Outbox
from tistream_agent.upstream.own_hold import ChainUnseen, Overtaken, OwnHold
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.pd_leader import OtherCluster
from tistream_agent.upstream.streams import StoreStreams

log = logging.getLogger(__name__)

TICK_S = 0.02
HOLD_RETRY_S = 1.0
LOOK_MS = 500  # between two calls of `look`, which walks over all pieces


class Machine(Protocol):
    """The interface of a territory's state machine (core.machine.TerritoryAgent)."""

    def step(self, event: Event, now_ms: int) -> Sequence[Command]: ...


class TerritoryDriver:
    """Runs the state machine of a territory until it stops or the process must end.

    Args:
        calls: runs calls to PD. At most `planner.SCANS` calls for regions, one for timestamps and one for the hold on
            GC are under way.
        files: runs PUTs, one at a time.
        wait: pauses for seconds; returns True once the process must end.
        look: called between steps with the machine, to read its state; no other thread may do so.
    """

    def __init__(
        self,
        machine: Machine,
        pd: PdClient,
        streams: StoreStreams,
        outbox: Outbox,
        hold: OwnHold,
        inbox: Inbox,
        calls: Executor,
        files: Executor,
        clock: Clock,
        metrics: AgentMetrics,
        wait: Callable[[float], bool],
        look: Callable[[], None],
    ) -> None:
        self._look, self._looked_ms = look, clock.monotonic_ms() - LOOK_MS
        self._machine, self._pd, self._streams, self._outbox, self._hold = machine, pd, streams, outbox, hold
        self._inbox, self._calls, self._files = inbox, calls, files
        self._clock, self._metrics, self._wait = clock, metrics, wait
        self._stopped_reading_ms: int | None = None
        self.claimed = False  # whether a file of this process is in the chain
        self._is_over = False  # the hold is not moved any more

    def run(self) -> steps.Stop | None:
        """Run the loop until the machine stops or the process must end. Returns the machine's Stop, or None if the
        process must end. All streams are closed before it returns."""
        try:
            while not self._wait(0):
                for event in [*self._inbox.take(TICK_S), steps.Tick()]:
                    self._count(event)
                    for command in self._machine.step(event, self._clock.monotonic_ms()):
                        if isinstance(command, steps.Stop):
                            log.error("the territory stops", extra={"code": command.code, "reason": command.reason})
                            return command
                        self._do(command)
                if self._clock.monotonic_ms() - self._looked_ms >= LOOK_MS:
                    self._looked_ms = self._clock.monotonic_ms()
                    self._look()
            return None
        finally:
            self._is_over = True
            self._streams.close()
            self._inbox.close()

    def _do(self, command: Command) -> None:
        match command:
            case steps.ScanRegions():
                self._calls.submit(self._scan, command)
            case steps.TakeTimestamps():
                self._calls.submit(self._timestamps, command)
            case steps.OpenStream():
                self._streams.open(command)
            case steps.Register():
                self._streams.register(command)
            case steps.Deregister():
                self._streams.deregister(command)
            case steps.CloseStream():
                self._streams.end(command)
            case steps.PutFile():
                self._files.submit(self._put, command)
            case steps.MoveHold():
                self._calls.submit(self._move, command)
            case steps.StopReading():
                self._stopped_reading_ms = self._clock.monotonic_ms()
                self._inbox.set_reading(False)
            case steps.ResumeReading():
                if self._stopped_reading_ms is not None:
                    stopped_ms = self._clock.monotonic_ms() - self._stopped_reading_ms
                    self._metrics.reading_stopped.inc(stopped_ms / 1000)
                self._stopped_reading_ms = None
                self._inbox.set_reading(True)

    def _scan(self, command: steps.ScanRegions) -> None:
        try:
            found = self._pd.regions(command.encoded_start, command.encoded_end)
        except TiStreamError as error:
            self._pd_failed("regions", error)
            self._inbox.put(steps.ScanFailed(command.scan))
            return
        except Exception:
            self._failed_unexpectedly("regions")
            self._inbox.put(steps.ScanFailed(command.scan))
            return
        self._inbox.put(steps.RegionsFound(command.scan, found))

    def _timestamps(self, command: steps.TakeTimestamps) -> None:
        try:
            last = self._pd.timestamps(command.count)
        except TiStreamError as error:
            self._pd_failed("timestamps", error)
            self._inbox.put(steps.TimestampsFailed(command.call))
            return
        except Exception:
            self._failed_unexpectedly("timestamps")
            self._inbox.put(steps.TimestampsFailed(command.call))
            return
        self._inbox.put(steps.TimestampsTaken(command.call, last))

    def _move(self, command: steps.MoveHold) -> None:
        unseen = ""
        while not self._wait(0) and not self._is_over:
            try:
                moved = self._hold.move(command.ts)
            except Overtaken as error:
                self._inbox.put(steps.ForeignFile(error.ts, error.nonce))
                return
            except ChainUnseen as error:
                if str(error) != unseen:
                    unseen = str(error)
                    log.warning("the hold on GC waits", extra={"reason": unseen})
                if self._wait(HOLD_RETRY_S):
                    return
                continue
            except TiStreamError as error:
                self._pd_failed("the GC hold", error)
                if isinstance(error, OtherCluster) or self._wait(HOLD_RETRY_S):
                    return
                continue
            except Exception:
                self._failed_unexpectedly("the GC hold")
                if self._wait(HOLD_RETRY_S):
                    return
                continue
            self._inbox.put(moved)
            return

    def _put(self, command: steps.PutFile) -> None:
        begun = self._hold.moment()
        try:
            done = self._outbox.put(command.draft)
        except Exception:
            # A file that cannot be written must not be left out: the next start takes it from TiKV again.
            log.exception("a file cannot be made: the territory stands still", extra={"key": command.draft.key})
            self._metrics.put_failures.inc()
            return
        if done is None:
            return
        if isinstance(done, steps.FileDurable):
            self._hold.seen(begun)
        self._metrics.put_seconds.observe((self._clock.monotonic_ms() - begun.monotonic_ms) / 1000)
        self._inbox.put(done)

    def _count(self, event: Event) -> None:
        match event:
            case steps.FileDurable():
                self.claimed = True
                self._metrics.files.inc()
            case steps.StreamEnded():
                self._metrics.streams_ended.inc()

    def _failed_unexpectedly(self, what: str) -> None:
        """Count and log the present exception of a call to PD; `what` names the call. The caller must send the machine
        an answer all the same: otherwise the machine would wait for it, and the territory would stand still."""
        self._metrics.pd_failures.inc()
        log.exception("a call to PD ended in an unexpected way", extra={"asked": what})

    def _pd_failed(self, what: str, error: TiStreamError) -> None:
        self._metrics.pd_failures.inc()
        log.warning("PD does not answer", extra={"asked": what, "reason": str(error)})
        if isinstance(error, OtherCluster):
            self._inbox.put(steps.ClusterChanged(str(error)))
