"""The order of the faults that a chaos run injects. Pure and seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

SERVICES = ("meta", "dispatcher", "sorter", "schema", "api")
EVERYTHING = "everything"
OWNER = "owner"  # the meta server that decides
COUNTS = {"meta": 3, "dispatcher": 2, "sorter": 2, "api": 2}  # how many there are of each where there are many


class Kind(StrEnum):
    """The kind of a fault."""

    KILL = "kill -9"
    PAUSE = "SIGSTOP"
    FULL = "disk full"
    READ_ONLY = "read-only"
    MOVE = "move"
    SPLIT = "split"
    MERGE = "merge"
    DRAIN = "drain"
    CUT = "cut"
    RESTART = "restart"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Fault:
    """`targets` are roles of processes (several: at once), the name of a disk, or the two between which nothing passes.
    A kill takes no time; of a restore `seconds` is how old the backup is. `pick` says which one where there are several
    of a role."""

    kind: Kind
    targets: tuple[str, ...]
    seconds: float = 0.0
    pick: int = 0

    def __str__(self) -> str:
        if self.kind == Kind.RESTORE:
            return f"{self.kind} {' + '.join(self.targets)} of {self.seconds:.0f} s ago"
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.kind} {' + '.join(self.targets)}{lasting}"

    @property
    def group(self) -> str:
        """The group under which a fault is counted."""
        alone = len(self.targets) == 1 or self.kind == Kind.CUT or len(set(self.targets)) == 1
        return f"{self.kind} {' + '.join(self.targets) if alone else 'two at once'}"


KILLED = (*SERVICES, "jvm", "worker", "up", EVERYTHING)
# "data" is all that the platform has, logs and meta database included; "objects" the object store, where the upstream
# pushes too; "pool" what the platform writes there.
DISKS = ((Kind.FULL, "data"), (Kind.FULL, "objects"), (Kind.READ_ONLY, "objects"), (Kind.READ_ONLY, "pool"))
_SHOWN_SECONDS = 9.0  # a lag above 5 s, and with it what the status says of the disk, needs that long
PAUSED = (*SERVICES, "jvm", "worker", "up", EVERYTHING)


_PAST_LEASE_SECONDS = (14.0, 20.0)  # a sorter is lost after 10 s without a heartbeat
_AWAY_SECONDS = 60.0
RESTORED = Fault(Kind.RESTORE, ("database",), 60.0)


# Every pair that talks. A service's name alone: all of its processes.
PAIRS = (
    ("meta", "sorter-2"),
    ("meta", "dispatcher-2"),
    ("meta", "schema"),
    ("meta", "api"),
    ("meta", "meta"),
    ("dispatcher", "sorter"),
    ("dispatcher-2", "sorter-2"),
    ("schema", "sorter"),
    ("schema", "api"),
    ("api", "sorter"),
    ("api", "dispatcher"),
)


def cuts(seed: int) -> Iterator[Fault]:
    """Endless rounds: between each pair of services, for longer than any lease, in an order of its own."""
    rng = random.Random(seed)
    while True:
        for pair in rng.sample(PAIRS, len(PAIRS)):
            yield Fault(Kind.CUT, pair, rng.uniform(*_PAST_LEASE_SECONDS))


def many_faults(seed: int) -> Iterator[Fault]:
    """Endless rounds for a platform with several of everything: what operators do, several times each, and every kind
    of process killed, and stopped for longer than its lease, once; all meta servers away for a minute."""
    rng = random.Random(seed)
    while True:
        one_round = [Fault(kind, ("task",)) for kind in (Kind.MOVE, Kind.SPLIT, Kind.MERGE) for _ in range(4)]
        one_round += [Fault(Kind.DRAIN, (role,), rng.uniform(4.0, 8.0)) for role in ("sorter", "dispatcher")]
        one_round += [Fault(Kind.KILL, (role,), pick=rng.randrange(6)) for role in (*COUNTS, OWNER, "schema")]
        lasting = [rng.uniform(*_PAST_LEASE_SECONDS) for _ in range(3)]
        struck = (("sorter", lasting[0]), ("dispatcher", lasting[1]), (OWNER, lasting[2]))
        one_round += [Fault(Kind.PAUSE, (role,), seconds, rng.randrange(6)) for role, seconds in struck]
        one_round.append(Fault(Kind.PAUSE, ("meta", "meta", "meta"), _AWAY_SECONDS))
        rng.shuffle(one_round)
        yield from one_round


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
