"""One chaos run: a platform, a simulated upstream, `tistream verify`, and one fault after another."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from support.chaos import plan
from support.chaos.database import Backups, counters
from support.chaos.disk import CannotMount, Disk, mounted, read_only
from support.chaos.operate import NotDone, Operator
from support.chaos.outcome import LATE_MS, Outcome, StatusSeen, Struck
from support.chaos.plan import Fault, Kind
from support.halting import halt
from support.lan_platform import LanPlatform
from support.platform import COMMAND, Platform, Process, _die_with_us, mains
from support.sim.audit import Audit, of_directory
from support.waiting import PATIENCE_S
from tistream_verify.lag import LagSample, Promise, beyond_promises

CLUSTER, TENANT = "1", "chaos"
_CALM_MS = 7_000  # below 5 s for so long (a lag needs 5 s to show): the next fault may come
_ANSWER_SECONDS = 60.0  # an operator waits so long for an answer
_BACKLOG_SECONDS = 2.5
_NEVER_S = 90.0  # after so long without recovery, or `recover_s` if that is more, the run goes on, and has failed


@dataclass(frozen=True, slots=True)
class Options:
    """One run. `scratch` holds what must survive full disks: truth, samples, reports. `seconds`: for so long the seed's
    faults are injected, while `faults` are injected one and all, however long that lasts."""

    scratch: Path
    seconds: float = 0.0
    seed: int = 1
    rows_per_s: int = 5_000
    ranges: int = 4
    recover_s: float = 15.0
    fault_s: tuple[float, float] = (2.0, 20.0)
    disk_bytes: int = 6 << 30
    simulate: tuple[str, ...] = ()  # more arguments of `tistream simulate`
    faults: tuple[Fault, ...] | None = None  # these, instead of the seed's
    many: bool = False  # several of everything, moved, split, merged and drained
    cuts: bool = False  # several of everything, each in a network of its own, cut off from each other


def run(options: Options, say: Callable[[str], None] = print) -> Outcome:
    """Run chaos from begin to end. It needs an empty scratch folder, and leaves no process and no mount."""
    outcome = Outcome(options.seed, options.rows_per_s, options.recover_s)
    with contextlib.ExitStack() as stack:
        data_dir = options.scratch / "data"
        disks = _disks(stack, data_dir, options, outcome)
        platform = _platform(options, data_dir)
        stack.callback(platform.close)
        chaos = Chaos(options, platform, disks, outcome, say)
        stack.callback(chaos.end)
        try:
            platform.start()
            with platform.within():
                chaos.run()
        except BaseException:
            say(platform.report())
            raise
        finally:
            shutil.copytree(platform.logs, options.scratch / "logs", dirs_exist_ok=True)
    return outcome


def _disks(stack: contextlib.ExitStack, data_dir: Path, options: Options, outcome: Outcome) -> dict[str, Disk]:
    """`data` is all that the platform has, logs and meta database included; `objects` the object store alone."""
    try:
        return {
            "data": stack.enter_context(mounted(data_dir, options.disk_bytes)),
            "objects": stack.enter_context(mounted(data_dir / "objects", options.disk_bytes)),
        }
    except CannotMount as reason:
        outcome.not_run.append(f"NOT RUN: disk full, read-only objects: cannot mount a disk here ({reason})")
        return {}


def _platform(options: Options, data_dir: Path) -> Platform:
    if options.cuts:
        return LanPlatform(data_dir, options.ranges, nodes={**plan.COUNTS, "schema": 1})
    counts = plan.COUNTS.items() if options.many else ()
    return Platform(data_dir, options.ranges, options=tuple(f"--{role}s={count}" for role, count in counts))


@dataclass
class Chaos:
    """The driver of a chaos run. It injects faults, ends them, and records the times."""

    options: Options
    platform: Platform
    disks: dict[str, Disk]
    outcome: Outcome
    say: Callable[[str], None]
    _http: httpx.Client | None = None
    _statuses: list[StatusSeen] = field(default_factory=list)
    _known: bool = False  # the tenant, to the api
    _operator: Operator | None = None
    _backups: Backups | None = None  # of the meta database, where it may be restored
    _load: subprocess.Popen[bytes] | None = None
    _verify: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Load a running platform, inject faults until the time is over, stop everything, and evaluate the records."""
        self._http = self.platform.http(2.0)
        self._operator = Operator(
            self.platform.url, random.Random(self.options.seed), self.platform.http(_ANSWER_SECONDS)
        )
        if self.options.many:
            self._backups = Backups(self.platform.data_dir / "meta.db", self.options.scratch / "backups")
        self._begin()
        started = time.monotonic()
        if not self._wait_calm(_now_ms()):
            rate = self.options.rows_per_s
            self.outcome.problems.append(
                f"the lag was not below 5 s before any fault: this machine is too slow, or too busy, for {rate} rows/s"
            )
        restored = not self.options.many or self.options.faults is not None
        for fault in self._faults():
            if not restored and time.monotonic() - started >= self.options.seconds / 2:
                restored = True
                self._strike(plan.RESTORED)
            if self.options.faults is None and time.monotonic() - started >= self.options.seconds:
                break
            self._strike(fault)
        if self.options.faults is None:
            self._while_it_lasts(self.options.seconds - (time.monotonic() - started))
        self.outcome.seconds = time.monotonic() - started
        self._finish()
        self.outcome.judge()

    def _faults(self) -> Iterator[Fault]:
        if self.options.faults is not None:
            of_disks = (Kind.FULL, Kind.READ_ONLY)
            return (fault for fault in self.options.faults if self.disks or fault.kind not in of_disks)
        return self.random_faults()

    def random_faults(self) -> Iterator[Fault]:
        """The faults that follow from the seed."""
        if self.options.cuts:
            return plan.cuts(self.options.seed)
        if self.options.many:
            return plan.many_faults(self.options.seed)
        return plan.faults(self.options.seed, bool(self.disks), self.options.fault_s)

    # --- what runs beside the platform ---------------------------------------------------------------------------

    def _begin(self) -> None:
        options, scratch = self.options, self.options.scratch
        with (scratch / "simulate.log").open("wb") as log:
            self._load = _started(self.load_command(), log, log, self.load_environ())
        command = [str(COMMAND), "verify", self.platform.url, "--cluster", CLUSTER, "--tenant", TENANT, "--json"]
        command += ["--truth", str(scratch / "truth"), "--samples", str(scratch / "samples")]
        command += ["--seed", str(options.seed)]
        with (scratch / "verify.json").open("wb") as report, (scratch / "verify.log").open("wb") as log:
            self._verify = _started(command, report, log, {**os.environ, **self.platform.user_environ()})

    def load_command(self) -> list[str]:
        """The command that runs the simulated upstream."""
        options = self.options
        command = [str(COMMAND), "simulate", "--objects", str(self.platform.objects), "--url", self.platform.url]
        command += ["--cluster", CLUSTER, "--tenant", TENANT, "--seed", str(options.seed)]
        command += ["--rows-per-s", str(options.rows_per_s), "--truth", str(options.scratch / "truth")]
        command += ["--promises", str(options.scratch / "promises")]
        return [*command, *options.simulate]

    def load_environ(self) -> dict[str, str]:
        """The environment of the simulated upstream."""
        return {**os.environ, **self.platform.user_environ()}

    def audited(self) -> Audit:
        """Check all written objects against the invariants."""
        return of_directory(self.platform.objects)

    def end(self) -> None:
        """Stop every process of the run, whatever has happened."""
        for process in (self._load, self._verify):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        if self._http is not None:
            self._http.close()
        if self._operator is not None:
            self._operator.close()

    def _finish(self) -> None:
        """Stop the upstream, let the consumers read the rest, stop the platform."""
        problems, scratch = self.outcome.problems, self.options.scratch
        assert self._load is not None
        assert self._verify is not None
        for name, process in (("simulate", self._load), ("verify", self._verify)):
            process.terminate()
            try:
                status = process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            if status and not (name == "verify" and status == 1):  # 1: violations, which its report tells
                end = (scratch / f"{name}.log").read_text(errors="replace")[-1_500:]
                problems.append(f"{name} ended with status {status}: {end}")
        text = (scratch / "verify.json").read_bytes()
        self.outcome.verify = json.loads(text) if text else {}
        self.outcome.samples = self._samples()
        try:
            self.platform.stop()
        except AssertionError as error:
            problems.append(f"up did not stop as it should: {str(error)[:1_000]}")
        self.outcome.traces = self.platform.traces()
        audit = self.audited()
        problems += audit.problems
        self.outcome.manifests, self.outcome.seals = audit.manifests, audit.seals

    # --- faults --------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        assert self._load is not None
        assert self._load.poll() is None, "the upstream ended by itself: " + self._log_end("simulate")
        assert self._verify is not None
        assert self._verify.poll() is None, "verify ended by itself: " + self._log_end("verify")
        begin_ms = _now_ms()
        self._statuses = []
        self.say(f"{_clock(begin_ms)} {fault}")
        end_ms = self._bring_about(fault)
        self._wait_calm(end_ms)
        struck = Struck(fault, begin_ms, end_ms, _now_ms(), tuple(self._statuses))
        self.outcome.struck.append(struck)
        recovered = struck.recovered(self._samples())
        worst = struck.worst_lag_ms(self._samples()) / 1000
        shown = "never" if recovered is None else f"{recovered / 1000:.1f} s"
        self.say(f"{_clock(_now_ms())}   worst lag {worst:.1f} s, under 5 s again after {shown}")

    def _bring_about(self, fault: Fault) -> int:
        """Inject a fault; returns the time at which it ended."""
        match fault.kind:
            case Kind.KILL:
                return self._kill(fault.targets, fault.pick)
            case Kind.PAUSE:
                pids = [process.pid for process in self._processes(fault.targets, fault.pick)]
                _signal(pids, signal.SIGSTOP)
                self._while_it_lasts(fault.seconds)
                _signal(pids, signal.SIGCONT)
            case Kind.FULL | Kind.READ_ONLY:
                self._spoil(fault)
            case Kind.CUT:
                assert isinstance(self.platform, LanPlatform)
                with self.platform.cut(*fault.targets):
                    self._while_it_lasts(fault.seconds)
            case Kind.MOVE | Kind.SPLIT | Kind.MERGE | Kind.DRAIN:
                self._operate(fault)
            case Kind.RESTORE:
                return self._restore(fault)
        return _now_ms()

    def _operate(self, fault: Fault) -> None:
        """Execute an operator's request, and wait until no task moves any more."""
        operator = self._operator
        assert operator is not None
        try:
            match fault.kind:
                case Kind.MOVE:
                    done = operator.move()
                case Kind.SPLIT:
                    done = operator.split()
                case Kind.MERGE:
                    done = operator.merge()
                case _:
                    done = operator.drain(fault.targets[0])
                    self._while_it_lasts(fault.seconds)
                    operator.drain(fault.targets[0], undo=done)
            self.say(f"{_clock(_now_ms())}   {done}")
            self._settle(done)
        except (NotDone, httpx.HTTPError) as error:
            self.outcome.problems.append(f"{fault}: {error}")

    def _settle(self, done: str) -> None:
        """Raises NotDone; httpx.HTTPStatusError."""
        assert self._operator is not None
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_settled(self._operator):
            if time.monotonic() > deadline:
                raise NotDone(f"{done}: tasks still move after {PATIENCE_S:.0f} s")
            self._while_it_lasts(0.2)

    def _is_settled(self, operator: Operator) -> bool:
        """Whether no task moves any more. False if that cannot be known now."""
        try:
            return operator.settled()
        except httpx.TransportError:
            return False

    def _restore(self, fault: Fault) -> int:
        """Restore the database as docs/operations/upgrade-backup.md says, while the other services continue. Return the
        time at which it ended."""
        backups = self._backups
        assert backups is not None
        while (copy := backups.of(fault.seconds)) is None:
            self._while_it_lasts(0.5)
        [up] = [process.pid for process in self.platform.alive() if process.role == "up"]
        halt([up])  # it would start them at once
        try:
            _signal([process.pid for process in self.platform.alive() if process.role == "meta"], signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE_S
            while any(process.role == "meta" for process in self.platform.alive()):
                assert time.monotonic() < deadline, "the meta servers do not stop"
                time.sleep(0.1)
            before, after = counters(backups.database), copy.counters()
            backups.restore(copy)
        finally:
            _signal([up], signal.SIGCONT)
        end_ms = _now_ms()
        forgotten = {name: f"{before[name]} -> {after.get(name)}" for name in before if before[name] != after.get(name)}
        self.say(f"{_clock(end_ms)}   a copy of {time.monotonic() - copy.at:.0f} s ago: {forgotten}")
        try:
            self._settle("restored")
        except (NotDone, httpx.HTTPError) as error:
            self.outcome.problems.append(f"{fault}: {error}")
        return end_ms

    def _spoil(self, fault: Fault) -> None:
        """A disk full or read-only, at a moment when the sorter is behind: while the upstream cannot push either, the
        platform must have something to write."""
        sorter = [process.pid for process in self._processes(("sorter",))]
        _signal(sorter, signal.SIGSTOP)
        self._while_it_lasts(_BACKLOG_SECONDS)
        disk = fault.targets[0]
        with self._full(disk) if fault.kind == Kind.FULL else self._read_only(disk):
            _signal(sorter, signal.SIGCONT)
            self._while_it_lasts(fault.seconds)

    @contextlib.contextmanager
    def _full(self, name: str) -> Iterator[None]:
        self.disks[name].fill()
        try:
            yield
        finally:
            self.disks[name].make_room()

    def _read_only(self, name: str) -> contextlib.AbstractContextManager[None]:
        objects = self.platform.objects
        return read_only({"objects": objects, "pool": objects / "committed"}[name])

    def _kill(self, targets: tuple[str, ...], pick: int) -> int:
        """SIGKILL; when. Without its supervisor the platform is started again at once, as an init system would."""
        pids = [process.pid for process in self._processes(targets, pick)]
        end_ms = _now_ms()  # before, and not after: what is killed need not die at once
        _signal(pids, signal.SIGKILL)
        if plan.EVERYTHING in targets or "up" in targets:
            if plan.EVERYTHING not in targets:
                self.platform.wait_gone(5)
            self.platform.kill_all()
            self.platform.start()
        return end_ms

    def _processes(self, targets: tuple[str, ...], pick: int = 0) -> list[Process]:
        """Those to strike: of a service its main process alone. One that is just being started is waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self._living(targets, pick)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found, f"none of {targets} runs: there is nothing to strike"
        return found

    def _living(self, targets: tuple[str, ...], pick: int) -> list[Process]:
        living = sorted(self.platform.alive(), key=lambda process: process.pid)
        if plan.EVERYTHING in targets:
            return living
        found = []
        for at, target in enumerate(targets):
            if target == "worker":
                found += [process for process in living if process.role == "other"]
            elif target == plan.OWNER:
                assert self._operator is not None
                found += self.platform.named(self._operator.owner(), living)
            else:
                of_role = [process for process in living if process.role == target]
                own = mains(of_role) or of_role[:1]  # `up` itself listens nowhere
                found += own[(pick + at) % len(own) :][:1] if own else []
        return found

    # --- watching ------------------------------------------------------------------------------------------------

    def _while_it_lasts(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._ask_status()
            time.sleep(min(0.5, max(0.0, deadline - time.monotonic())))

    def _wait_calm(self, since_ms: int) -> bool:
        """Wait until the lag has been below 5 s for a while (True), or for so long that waiting is useless (False)."""
        while _now_ms() - since_ms < 1_000 * max(_NEVER_S, self.options.recover_s):
            time.sleep(0.5)
            self._ask_status()
            recent = [sample for sample in self._samples() if sample.at_ms >= max(since_ms, _now_ms() - _CALM_MS)]
            enough = len(recent) >= _CALM_MS // 500 and _now_ms() - since_ms >= _CALM_MS
            if enough and all(sample.lag_ms < LATE_MS for sample in recent):
                return True
        return False

    def _ask_status(self) -> None:
        if self._backups is not None and self._known:
            self._backups.take_when_due()
        url = f"{self.platform.url}/v1/clusters/{CLUSTER}/tenants/{TENANT}/status"
        try:
            assert self._http is not None
            answer = self._http.get(url)
        except httpx.HTTPError:
            return  # the api may be what was struck
        if answer.status_code == httpx.codes.OK:
            body = answer.json()
            self._known = True
            self._statuses.append(
                StatusSeen(_now_ms(), math.inf if body["lag_seconds"] is None else body["lag_seconds"], body["held_by"])
            )
        elif answer.status_code != httpx.codes.SERVICE_UNAVAILABLE and self._known:
            self.outcome.problems.append(f"status answered {answer.status_code}: {answer.text[:300]}")

    def _samples(self) -> list[LagSample]:
        """The samples of the platform's own lag, taken four times a second."""
        promises = [Promise.parse(line) for line in self._lines("promises")]
        return beyond_promises([LagSample(**json.loads(line)) for line in self._lines("samples")], promises)

    def _lines(self, name: str) -> list[bytes]:
        path = self.options.scratch / name
        text = path.read_bytes() if path.exists() else b""
        return text[: text.rfind(b"\n") + 1].splitlines()

    def _log_end(self, name: str) -> str:
        return (self.options.scratch / f"{name}.log").read_text(errors="replace")[-2_000:]


def _started(command: list[str], out: IO[bytes], log: IO[bytes], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=environ, stdout=out, stderr=log, preexec_fn=_die_with_us)  # noqa: PLW1509 (as there)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clock(at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))
