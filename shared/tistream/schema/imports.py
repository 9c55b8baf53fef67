"""Tracks when rows may have arrived in a table as SST files, which are in no log. Pure.

TiDB sets a table's import mode while IMPORT INTO or a restore writes its files. Rows that arrived in this way are known
only from a backfill as of a ts at or above the end of the mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImportPeriod:
    """One period of a table's import mode: TiDB set it at `from_ts` and cleared it at `to_ts`. `to_ts` is None while
    the mode is set."""

    from_ts: int
    to_ts: int | None


class ImportModes:
    """The last IMPORT INTO, or restore of files, into each physical table id."""

    def __init__(self) -> None:
        self._of: dict[int, ImportPeriod] = {}

    def begin(self, physical_ids: Iterable[int], ts: int) -> None:
        """Record that the import mode of these ids is set from `ts` on. If an earlier import of an id is known, the new
        one begins where that one began, because it is not known whether a backfill came between them."""
        for one in physical_ids:
            known = self._of.get(one)
            self._of[one] = ImportPeriod(ts if known is None else known.from_ts, None)

    def end(self, physical_ids: Iterable[int], ts: int) -> None:
        """Record that the import mode of these ids is cleared at `ts`. Ids whose mode is not set are ignored."""
        for one in physical_ids:
            known = self._of.get(one)
            if known is not None and known.to_ts is None:
                self._of[one] = ImportPeriod(known.from_ts, ts)

    def ran(self, physical_ids: Iterable[int], from_ts: int, to_ts: int) -> None:
        """Record a restore that is known only after its end. If an import of an id is known too, the result covers
        both; an import that has not ended stays so."""
        for one in physical_ids:
            known = self._of.get(one, ImportPeriod(from_ts, to_ts))
            ended_ts = None if known.to_ts is None else max(known.to_ts, to_ts)
            self._of[one] = ImportPeriod(min(known.from_ts, from_ts), ended_ts)

    def drop(self, physical_id: int) -> None:
        """Remove an id that no longer belongs to any table. The rows of the id are gone too."""
        self._of.pop(physical_id, None)

    def of(self, physical_id: int) -> ImportPeriod | None:
        """The last import into a physical id; None if there was no import."""
        return self._of.get(physical_id)

    def ids(self) -> list[int]:
        """The physical ids into which there was an import, in ascending order."""
        return sorted(self._of)

    def ended(self, ts: int) -> tuple[tuple[int, int, int], ...]:
        """The imports whose end is at or before `ts`, as (id, from_ts, to_ts), in order of the ids."""
        return tuple(
            (one, found.from_ts, found.to_ts)
            for one, found in sorted(self._of.items())
            if found.to_ts is not None and found.to_ts <= ts
        )

    def restore(self, ended: Iterable[tuple[int, int, int]]) -> None:
        """Add the imports that `ended` returned. If an import of the same id is known already, it is newer and
        stays."""
        for one, from_ts, to_ts in ended:
            self._of.setdefault(one, ImportPeriod(from_ts, to_ts))


def problem(found: ImportPeriod, base_ts: int | None, low: int, high: int) -> str | None:
    """The reason why changes in (low, high] of a physical id cannot be served; None if they can. `found` is the id's
    last import. `base_ts`: the ts as of which all rows of the id were backfilled; None if they were not."""
    if high <= found.from_ts:
        return None
    if found.to_ts is None:
        return (
            f"since {found.from_ts} rows are imported into it, which no log has: when the import has ended, backfill it"
        )
    if base_ts is None or base_ts < found.to_ts:
        return (
            f"rows were imported into it until {found.to_ts}, which no log has: backfill it as of that ts or a later "
            "one"
        )
    if low < found.to_ts:
        return (
            f"rows were imported into it until {found.to_ts}, above this position, and are in no change: begin with a "
            f"snapshot as of {base_ts} or later"
        )
    return None
