"""What befalls a simulated platform: a little all the time, and now and then something of its own kind for a while."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from support.sim.platform import Member, SimPlatform

MS = 1_000


@dataclass
class Chaos:
    """Runs in the scheduler's own context until `stop`; the dead are started again all the time, after it too."""

    platform: SimPlatform
    rng: random.Random
    every_ms: int = 3_000
    told: list[str] = field(default_factory=list)
    going: bool = True

    def begin(self) -> None:
        """Set the everyday faults, and the first of the others on its way."""
        faults, network = self.platform.faults, self.platform.network.faults
        network.lost, network.twice, network.slow = 0.01, 0.02, 0.02
        faults.store.refused, faults.store.unanswered, faults.store.slow = 0.01, 0.02, 0.02
        faults.killed = self.rng.choice((0.0, 0.0002, 0.001))
        faults.database_silent, faults.job_lost = 0.01, 0.02
        for member in self.platform.members.values():
            self.platform.start(member)
        self._revive()
        self._next()

    def stop(self) -> None:
        """No more faults; what was done is undone."""
        self.going = False
        faults, network = self.platform.faults, self.platform.network
        network.faults.lost = network.faults.twice = network.faults.slow = 0.0
        store = faults.store
        store.refused = store.unanswered = store.slow = 0.0
        faults.database_silent = faults.job_lost = faults.killed = 0.0
        network.cut.clear()
        for member in self.platform.members.values():
            if member.process is not None:
                self.platform.scheduler.proceed(member.process)

    def _tell(self, what: str) -> None:
        self.told.append(f"{self.platform.scheduler.now_ms % 100_000_000}: {what}")

    def _later(self, delay_ms: float, happen: Callable[[], None]) -> None:
        self.platform.scheduler.after(int(delay_ms * MS), happen)

    def _revive(self) -> None:
        """A supervisor, or Kubernetes: whoever is dead is started again, sooner or later."""
        for member in self.platform.members.values():
            if member.process is not None and not member.process.alive and self.rng.random() < 0.3:
                self._tell(f"start {member.name}")
                self.platform.start(member)
        self._later(300, self._revive)

    def _next(self) -> None:
        self._later(self.rng.expovariate(1 / self.every_ms), self._strike)

    def _strike(self) -> None:
        if not self.going:
            return
        strikes = (self._kill, self._pause, self._cut, self._storm, self._kill_many)
        self.rng.choices(strikes, (3, 3, 1, 2, 0.5))[0]()
        self._next()

    def _someone(self) -> Member:
        return self.rng.choice(list(self.platform.members.values()))

    def _kill(self) -> None:
        member = self._someone()
        if member.process is not None and member.process.alive:
            self._tell(f"kill {member.name}")
            self.platform.kill(member.process)

    def _kill_many(self) -> None:
        self._tell("kill many")
        for member in self.platform.members.values():
            if member.process is not None and self.rng.random() < 0.6:
                self.platform.kill(member.process)

    def _pause(self) -> None:
        process = self._someone().process
        if process is None or process.paused:
            return
        self._tell(f"pause {process.name}")
        self.platform.scheduler.pause(process)
        self._later(self.rng.choice((500, 3_000, 20_000)) * self.rng.random(), lambda: self._proceed(process))

    def _proceed(self, process: object) -> None:
        self._tell(f"proceed {process}")
        self.platform.scheduler.proceed(process)  # type: ignore[arg-type]

    def _cut(self) -> None:
        pair = frozenset(member.name for member in self.rng.sample(list(self.platform.members.values()), 2))
        self._tell(f"cut {sorted(pair)}")
        self.platform.network.cut.add(pair)
        self._later(self.rng.uniform(500, 15_000), lambda: self.platform.network.cut.discard(pair))

    def _storm(self) -> None:
        """One kind of fault is frequent for a while."""
        store, network, faults = self.platform.faults.store, self.platform.network.faults, self.platform.faults
        owner, name = self.rng.choice(
            (
                (store, "refused"),
                (store, "unanswered"),
                (store, "slow"),
                (faults, "killed"),
                (network, "lost"),
                (network, "twice"),
                (network, "slow"),
                (faults, "database_silent"),
                (faults, "job_lost"),
            )
        )
        before = getattr(owner, name)
        strength = 0.02 if name == "killed" else self.rng.uniform(0.1, 0.6)
        self._tell(f"storm {name} {strength:.2f}")
        setattr(owner, name, strength)

        def over() -> None:
            if self.going:
                setattr(owner, name, before)

        self._later(self.rng.uniform(500, 6_000), over)
