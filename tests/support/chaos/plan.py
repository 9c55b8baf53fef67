"""Which faults a chaos run brings about, in which order; pure and seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

SERVICES = ("meta", "dispatcher", "sorter", "schema", "api")
EVERYTHING = "everything"


class Kind(StrEnum):
    """What happens."""

    KILL = "kill -9"
    PAUSE = "SIGSTOP"
    FULL = "disk full"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True)
class Fault:
    """`targets` are roles of processes (several: at once), or the name of a disk. A kill takes no time."""

    kind: Kind
    targets: tuple[str, ...]
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.kind} {' + '.join(self.targets)}{lasting}"

    @property
    def group(self) -> str:
        """Faults of one group are counted together."""
        return f"{self.kind} {' + '.join(self.targets) if len(self.targets) == 1 else 'two at once'}"


KILLED = (*SERVICES, "jvm", "worker", "up", EVERYTHING)
# "data" is all that the platform has, logs and meta database included; "objects" the object store, where the upstream
# pushes too; "pool" what the platform writes there.
DISKS = ((Kind.FULL, "data"), (Kind.FULL, "objects"), (Kind.READ_ONLY, "objects"), (Kind.READ_ONLY, "pool"))
_SHOWN_SECONDS = 9.0  # a lag above 5 s, and with it what the status says of the disk, needs that long
PAUSED = (*SERVICES, "jvm", "worker", "up", EVERYTHING)


def faults(seed: int, disks: bool, seconds: tuple[float, float] = (2.0, 20.0)) -> Iterator[Fault]:
    """Endless rounds; each has every kind of fault on every target once, in an order of its own.

    `disks`: whether they can be filled and made read-only here. `seconds`: how short and how long a fault lasts.
    """
    rng = random.Random(seed)
    low, high = seconds
    while True:
        one_round = [Fault(Kind.KILL, (target,)) for target in KILLED]
        one_round += [Fault(Kind.PAUSE, (target,), rng.uniform(low, high)) for target in PAUSED]
        if disks:
            lasting = max(low, min(_SHOWN_SECONDS, high))
            one_round += [Fault(kind, (disk,), rng.uniform(lasting, high)) for kind, disk in DISKS]
        for _ in range(3):
            one_round.append(Fault(Kind.KILL, tuple(rng.sample(SERVICES, 2))))
            one_round.append(Fault(Kind.PAUSE, tuple(rng.sample(SERVICES, 2)), rng.uniform(low, high)))
        rng.shuffle(one_round)
        yield from one_round
