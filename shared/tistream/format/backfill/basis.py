"""What a task knows of the rows before its log: the spans with a base, and the base runs that hold the rows. Pure.

A checkpoint manifest restates it whole. JSON: `{"cover":[[start hex, end hex, base_ts],…],"runs":[…]}`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tistream.format.run import RunRef
from tistream.model.base_cover import Base, Cover, clipped, laid_over
from tistream.model.span import KeySpan


@dataclass(frozen=True, slots=True)
class Basis:
    """`cover`: the bases, in key order, without overlaps. `runs`: objects of base runs in any order; no key is in two.

    A row in a run is the oldest version of its key: neither the index nor a segment has one at or below the run's
    high_ts. A fold of the version index at a ts drops deletes, so it must take these rows as the oldest versions of
    its keys, and drop the runs that it took; the cover stays.
    """

    cover: Cover = ()
    runs: tuple[RunRef, ...] = ()

    def with_base(self, base: Base, runs: Iterable[RunRef]) -> Basis:
        """The basis with one more base, and the objects with its rows, if it has any."""
        return Basis(laid_over(self.cover, [base]), (*self.runs, *runs))

    def within(self, span: KeySpan) -> Basis:
        """The part that concerns `span`. A run that reaches beyond it is kept whole: readers clip its rows."""
        runs = tuple(run for run in self.runs if run.touches(span))
        return Basis(clipped(self.cover, span), runs)

    def to_json(self) -> dict[str, Any]:
        cover = [[base.span.start.hex(), base.span.end.hex(), base.base_ts] for base in self.cover]
        return {"cover": cover, "runs": [run.to_json() for run in self.runs]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Basis:
        cover = (
            Base(KeySpan(bytes.fromhex(start), bytes.fromhex(end)), base_ts) for start, end, base_ts in data["cover"]
        )
        return cls(tuple(cover), tuple(map(RunRef.from_json, data["runs"])))


NO_BASIS = Basis()


def united(parts: Iterable[Basis]) -> Basis:
    """One basis of several. Tasks that share a run name it once."""
    found = list(parts)
    runs = {run.key: run for part in found for run in part.runs}
    return Basis(laid_over((), (base for part in found for base in part.cover)), tuple(runs.values()))
