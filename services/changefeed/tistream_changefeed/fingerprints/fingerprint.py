"""Fingerprints of events: their number, and the sum and the XOR of their hashes. None of the three depends on the order
of the events, and fingerprints of disjoint parts add up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tistream.arrays import Int64s, UInt64s
from tistream.schema.visible import Name

_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The number of some events, and the sum (`total`, modulo 2^64) and the XOR of their 64-bit hashes. The sum of two
    fingerprints is the fingerprint of all of their events."""

    events: int = 0
    total: int = 0
    xor: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        total = (self.total + other.total) % _MODULUS
        return Fingerprint(self.events + other.events, total, self.xor ^ other.xor)


Fingerprints = Mapping[Name, Fingerprint]
"""Fingerprints by table."""


def by_table(hashes: UInt64s, numbers: Int64s, names: Sequence[Name]) -> dict[Name, Fingerprint]:
    """The fingerprint of each table that has events. `numbers`: for each event, the index of its table in `names`,
    which may have a table several times."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else ordered
    if not len(starts):
        return {}
    events = np.diff(np.append(starts, len(ordered)))
    totals, xors = (reduced.reduceat(hashes[order], starts) for reduced in (np.add, np.bitwise_xor))
    each = zip(ordered[starts].tolist(), events.tolist(), totals.tolist(), xors.tolist(), strict=True)
    return summed({names[number]: Fingerprint(*one)} for number, *one in each)


def summed(parts: Iterable[Fingerprints]) -> dict[Name, Fingerprint]:
    """The fingerprint of each table over all of `parts`, which have disjoint events."""
    found: dict[Name, Fingerprint] = {}
    for part in parts:
        for name, one in part.items():
            found[name] = found.get(name, Fingerprint()) + one
    return found
