"""`make compose-chaos`: containers killed, frozen, restarted, MinIO's disk full, under load and `tistream verify`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from support.chaos import plan
from support.chaos.disk import mounted
from support.chaos.outcome import Outcome
from support.chaos.plan import Fault, Kind
from support.chaos.run import TENANT, Chaos, Options, _now_ms
from support.compose import engine
from support.compose.containers import Containers, container_of
from support.sim.audit import Audit, of_store

_AWAY_SECONDS = (5.0, 20.0)
_REDUNDANT = ("meta", "dispatcher", "sorter", plan.OWNER)
_ALONE = ("schema", "ingest", "mysql", "minio", "api")  # those who pull here know one API server
FULL_SECONDS = 12.0


def faults(seed: int) -> Iterator[Fault]:
    """Endless rounds: of every kind of container one killed and one frozen, the database restarted, the disk full."""
    rng = random.Random(seed)
    while True:
        away = [
            (role, rng.uniform(*_AWAY_SECONDS), rng.randrange(6)) for role in (*_REDUNDANT, *_ALONE) for _ in range(2)
        ]
        one_round = [Fault(Kind.KILL, (role,), seconds, pick) for role, seconds, pick in away[::2]]
        one_round += [Fault(Kind.PAUSE, (role,), seconds, pick) for role, seconds, pick in away[1::2]]
        one_round += [Fault(Kind.RESTART, ("mysql",)), Fault(Kind.RESTART, ("mysql",)), Fault(Kind.RESTART, ("minio",))]
        one_round.append(Fault(Kind.FULL, ("minio",), FULL_SECONDS))
        rng.shuffle(one_round)
        yield from one_round


@contextlib.contextmanager
def started(options: Options) -> Iterator[ComposeChaos]:
    """A running platform in containers with its chaos driver. Leaves no container and no mount. Raises NoEngine,
    CannotMount."""
    engine.make_bases()
    outcome = Outcome(options.seed, options.rows_per_s, options.recover_s)
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(mounted(options.scratch / "objects", options.disk_bytes))
        platform = Containers(options.scratch / "data", options.ranges, disk=disk, settings=_settings(options))
        stack.callback(platform.close)
        chaos = ComposeChaos(options, platform, {"minio": disk}, outcome, print)
        stack.callback(chaos.end)
        try:
            platform.build()
            platform.start()
            yield chaos
        except BaseException:
            print(platform.report())
            raise


def run(options: Options, say: Callable[[str], None] = print) -> Outcome:
    """Run chaos on containers from begin to end."""
    with started(options) as chaos:
        chaos.say = say
        chaos.run()
    return chaos.outcome


def _settings(options: Options) -> dict[str, str]:
    names = ("--truth", "--txns-per-s")
    given = dict(zip(options.simulate[::2], options.simulate[1::2], strict=True))
    return {
        "DEMO_TENANT": TENANT,
        "DEMO_SEED": str(options.seed),
        "DEMO_ROWS_PER_S": str(options.rows_per_s),
        "DEMO_TXNS_PER_S": given["--txns-per-s"],
        "DEMO_OPTIONS": " ".join(f"{name} {value}" for name, value in given.items() if name not in names),
    }


@dataclass
class ComposeChaos(Chaos):
    """Injects the faults of Chaos into containers."""

    @property
    def containers(self) -> Containers:
        """The containers into which faults are injected."""
        assert isinstance(self.platform, Containers)
        return self.platform

    def load_command(self) -> list[str]:
        """The upstream, in its container; what it writes is found where a run on processes would have it."""
        for name, file in (("truth", f"{TENANT}.jsonl"), ("promises", f"{TENANT}.promises")):
            (self.options.scratch / name).symlink_to(self.containers.truth / file)
        return self.containers.command("run", "--rm", "--no-deps", "-T", "upstream")

    def load_environ(self) -> dict[str, str]:
        return self.containers.environment()

    def random_faults(self) -> Iterator[Fault]:
        return faults(self.options.seed)

    def audited(self) -> Audit:
        """Read while MinIO still runs: only the platform's own services have been stopped."""
        return of_store(self.containers.bucket())

    def _bring_about(self, fault: Fault) -> int:
        """Inject a fault; returns the time at which it ended. Of a role with several containers, only one is struck,
        because the others are to continue."""
        names = [self._name(target, fault.pick) for target in fault.targets]
        self.say(f"  {', '.join(names)}")
        begin_ms = _now_ms()
        match fault.kind:
            case Kind.KILL:
                for name in names:
                    self.containers.kill(name)
                self._while_it_lasts(fault.seconds)
                for name in names:
                    self.containers.bring_back(name)
            case Kind.PAUSE:
                with self.containers.paused(*names):
                    self._while_it_lasts(fault.seconds)
            case Kind.RESTART:
                for name in names:
                    self.containers.restart(name)
            case Kind.FULL:
                self._fill(fault)
            case _:
                self._operate(fault)
        alone = fault.kind == Kind.FULL or not set(fault.targets) <= set(_REDUNDANT)
        return _now_ms() if alone else begin_ms

    def _fill(self, fault: Fault) -> None:
        """While sorters are behind, so that they have something to write: the upstream cannot push either."""
        with self.containers.paused("sorter-1", "sorter-2"):
            self._while_it_lasts(2.5)
            self.disks["minio"].fill()
            refused = self.containers.refuses()
        if not refused:
            self.outcome.problems.append(f"{fault}: MinIO goes on writing, so that nothing was tried")
        try:
            self._while_it_lasts(fault.seconds)
        finally:
            self.disks["minio"].make_room()

    def _name(self, target: str, pick: int) -> str:
        if target != plan.OWNER:
            return container_of(target, pick)
        assert self._operator is not None
        return self._operator.owner()
