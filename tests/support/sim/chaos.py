"""What befalls a simulated platform: a little all the time, and now and then something of its own kind for a while; or
nothing but what a script says."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from support.sim.operator import Operator
from support.sim.platform import Member, SimPlatform
from support.sim.scheduler import Process

MS = 1_000
AT_WORK_MS = 8_000  # strikes begin once something was committed, or after this

TASK_ACTS = (Operator.move, Operator.split, Operator.split, Operator.merge, Operator.drain)
ACTS = (*TASK_ACTS, Operator.retire)
Script = Sequence[tuple[float, Callable[["Chaos"], None]]]  # ms since the platform was at work, and what happens then


@dataclass
class Chaos:
    """Runs in the scheduler's own context until `stop`; the dead are started again all the time, after it too."""

    platform: SimPlatform
    rng: random.Random
    every_ms: int = 3_000
    script: Script | None = None
    acts: Sequence[Callable[[Operator], None]] = ACTS
    told: list[str] = field(default_factory=list)
    going: bool = True
    replaced: list[Process] = field(default_factory=list)  # they hung, and do not know of their successors

    def begin(self, at_work: Callable[[], bool]) -> None:
        """Start all processes, and the faults once the platform is `at_work`."""
        for member in self.platform.members.values():
            self.platform.start(member)
        self._revive()
        self._back_up()
        self._wait(at_work, self.platform.scheduler.now_ms + AT_WORK_MS)

    def _wait(self, at_work: Callable[[], bool], until_ms: int) -> None:
        if not at_work() and self.platform.scheduler.now_ms < until_ms:
            self._later(100, lambda: self._wait(at_work, until_ms))
            return
        if self.script is not None:
            for at_ms, strike in self.script:
                self._later(at_ms, lambda strike=strike: strike(self))  # type: ignore[misc]
            return
        faults, network = self.platform.faults, self.platform.network.faults
        network.lost, network.twice, network.slow = 0.002, 0.02, 0.01
        faults.store.refused, faults.store.unanswered, faults.store.slow = 0.005, 0.01, 0.01
        faults.killed = self.rng.choice((0.0, 0.0002, 0.001))
        faults.database_silent, faults.job_lost = 0.005, 0.01
        self._next()

    def stop(self) -> None:
        """Stop all faults, and undo those in effect."""
        self.going = False
        faults, network = self.platform.faults, self.platform.network
        network.faults.lost = network.faults.twice = network.faults.slow = 0.0
        store = faults.store
        store.refused = store.unanswered = store.slow = 0.0
        faults.database_silent = faults.job_lost = faults.killed = faults.jvm_dead = 0.0
        network.cut.clear()
        network.alone.clear()
        for process in self.replaced:
            if process.name in {member.name for member in self.platform.of("meta")}:
                self.platform.kill(process)  # it registers nowhere: nobody tells it
            else:
                self.platform.scheduler.proceed(process)
        for member in self.platform.members.values():
            if member.process is not None:
                self.platform.scheduler.proceed(member.process)

    def _tell(self, what: str) -> None:
        self.told.append(f"{self.platform.scheduler.now_ms % 100_000_000}: {what}")

    def _later(self, delay_ms: float, happen: Callable[[], None]) -> None:
        self.platform.scheduler.after(int(delay_ms * MS), happen)

    def _revive(self) -> None:
        """Restart dead processes after a random time, as a supervisor or Kubernetes does."""
        for member in self.platform.members.values():
            if member.process is not None and not member.process.alive and self.rng.random() < 0.4:
                self._tell(f"start {member.name}")
                self.platform.start(member)
        self._later(300, self._revive)

    def _next(self) -> None:
        self._later(self.rng.expovariate(1 / self.every_ms), self._strike)

    def _strike(self) -> None:
        if not self.going:
            return
        strikes = (self._some_kill, self._some_pause, self._some_replace, self._cut, self._isolate, self._some_storm)
        rare = (self._kill_many, self._some_forget)
        self.rng.choices((*strikes, self._operate, *rare), (3, 3, 2, 1, 1, 3, 5, 0.3, 0.7))[0]()
        self._next()

    def _someone(self) -> Member:
        return self.rng.choice(list(self.platform.members.values()))

    def _some_kill(self) -> None:
        self.kill(self._someone())

    def _some_pause(self) -> None:
        self.pause(self._someone(), self.rng.choice((500, 3_000, 12_000)) * self.rng.random())

    def _some_replace(self) -> None:
        self.replace(self._someone(), self.rng.uniform(500, 8_000), self.rng.uniform(9_000, 15_000))

    def _some_storm(self) -> None:
        """One kind of fault is frequent for a while."""
        faults = self.platform.faults
        owner, name = self.rng.choice(
            (
                (faults.store, "refused"),
                (faults.store, "unanswered"),
                (faults.store, "slow"),
                (self.platform.network.faults, "lost"),
                (self.platform.network.faults, "twice"),
                (self.platform.network.faults, "slow"),
                (faults, "killed"),
                (faults, "database_silent"),
                (faults, "job_lost"),
                (faults, "jvm_dead"),
            )
        )
        strength = 0.02 if name in ("killed", "jvm_dead") else self.rng.uniform(0.1, 0.6)
        self.storm(owner, name, strength, self.rng.uniform(500, 4_000))

    def kill(self, member: Member) -> None:
        """Kill a process (SIGKILL)."""
        if member.process is not None and member.process.alive:
            self._tell(f"kill {member.name}")
            self.platform.kill(member.process)

    def _kill_many(self) -> None:
        self._tell("kill many")
        for member in self.platform.members.values():
            if member.process is not None and self.rng.random() < 0.6:
                self.platform.kill(member.process)

    def pause(self, member: Member, for_ms: float) -> None:
        """Pause a process and continue it later (SIGSTOP, SIGCONT)."""
        process = member.process
        if process is None or process.paused:
            return
        self._tell(f"pause {process.name}")
        self.platform.scheduler.pause(process)
        self._later(for_ms, lambda: self._proceed(process))

    def replace(self, member: Member, wakes_ms: float, dies_ms: float) -> None:
        """A process hangs, is taken for dead and replaced; then it wakes, and knows nothing of its successor."""
        process = member.process
        if process is None or not process.alive or process.paused:
            return
        self._tell(f"replace {process.name}")
        self.platform.scheduler.pause(process)
        member.process = None
        self.platform.start(member)
        self.replaced.append(process)
        self._later(wakes_ms, lambda: self._proceed(process))
        self._later(dies_ms, lambda: self.going and self.platform.kill(process))

    def _proceed(self, process: Process) -> None:
        self._tell(f"proceed {process}")
        self.platform.scheduler.proceed(process)

    def _back_up(self) -> None:
        """A managed database can go back to any point in time, to within so much."""
        if self.going:
            self.platform.back_up()
            self._later(500, self._back_up)

    def _some_forget(self) -> None:
        self.forget(self.rng.choice((1_000, 4_000, 10_000, None)))

    def forget(self, age_ms: int | None) -> None:
        """The meta database is restored from a backup, while no meta server runs: from one that is so old, or (None)
        from one of before the tenant's start."""
        metas = {member.name for member in self.platform.of("meta")}
        processes = [member.process for member in self.platform.of("meta") if member.process is not None]
        for process in [*processes, *(one for one in self.replaced if one.name in metas)]:
            self.platform.kill(process)
        if self.platform.forget_start() if age_ms is None else self.platform.forget(age_ms):
            self._tell("forget the start" if age_ms is None else f"forget {age_ms} ms")

    def _cut(self) -> None:
        pair = frozenset(member.name for member in self.rng.sample(list(self.platform.members.values()), 2))
        self._tell(f"cut {sorted(pair)}")
        self.platform.network.cut.add(pair)
        self._later(self.rng.uniform(500, 10_000), lambda: self.platform.network.cut.discard(pair))

    def _operate(self) -> None:
        """An operator's command, from outside; what cannot be done just now is not done."""
        act = self.rng.choice(self.acts)
        operator = Operator(self.platform, random.Random(self.rng.random()))
        self._tell(act.__name__)
        self.platform.scheduler.start(self.platform.outside, "operator", lambda: act(operator))

    def _isolate(self) -> None:
        """Somebody reaches neither peers nor the object store."""
        name, alone = self._someone().name, self.platform.network.alone
        self._tell(f"isolate {name}")
        alone.add(name)
        self._later(self.rng.uniform(500, 8_000), lambda: alone.discard(name))

    def storm(self, owner: object, name: str, strength: float, for_ms: float) -> None:
        """Raise the probability `owner.name` to `strength` for a while."""
        before = getattr(owner, name)
        self._tell(f"storm {name} {strength:.2f}")
        setattr(owner, name, strength)

        def over() -> None:
            if self.going:
                setattr(owner, name, before)

        self._later(for_ms, over)
