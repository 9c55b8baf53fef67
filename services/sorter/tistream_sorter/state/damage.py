"""Tracks change files that a task could not read. Such a file counts as incomplete at first, and as damaged after a
grace time (design.md 2). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tistream.wire.file_batch import FileRef
from tistream.wire.sorter import Hold

GRACE_MS = 2_000  # an upload may still be in progress
RETRY_MS = (500, 1_000, 2_000, 5_000)


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """One file that could not be read. `first_ms`: when this was noticed first. `tries`: how often it was read since.
    No file of its chain is accepted before `retry_ms`. Times are monotonic ms."""

    store_id: int
    chain_ts: int
    ts: int
    key: str
    reason: str
    first_ms: int
    tries: int
    retry_ms: int


@dataclass(slots=True)
class DamagedFiles:
    """The unreadable files of a task: at most one for each chain of a store, by (store_id, chain_ts). Later files of
    the chain wait; files of a new chain do not."""

    by_chain: dict[tuple[int, int], DamagedFile] = field(default_factory=dict)

    def note(self, ref: FileRef, reason: str, now_ms: int) -> None:
        """Record that a file could not be read, with the reason. Files of its chain are refused for a pause that grows
        with each failed read of the file. `now_ms`: monotonic."""
        known = self.by_chain.get((ref.store_id, ref.chain_ts))
        if known is None or known.key != ref.key:
            known = DamagedFile(ref.store_id, ref.chain_ts, ref.ts, ref.key, reason, now_ms, 0, now_ms)
        pause = RETRY_MS[min(known.tries, len(RETRY_MS) - 1)]
        again = replace(known, reason=reason, tries=known.tries + 1, retry_ms=now_ms + pause)
        self.by_chain[ref.store_id, ref.chain_ts] = again

    def refuses(self, ref: FileRef, now_ms: int) -> bool:
        """Whether the file must not be queued at `now_ms` (monotonic), because a file of its chain could not be
        read."""
        known = self.by_chain.get((ref.store_id, ref.chain_ts))
        return known is not None and now_ms < known.retry_ms

    def accepted(self, ref: FileRef) -> None:
        """Record that a file was accepted. Forgets the unreadable files of its chain up to this file, and those of
        older chains of the store."""
        for known in [known for known in self.by_chain.values() if known.store_id == ref.store_id]:
            same = known.chain_ts == ref.chain_ts and known.ts <= ref.ts
            if same or known.chain_ts < ref.chain_ts:
                del self.by_chain[known.store_id, known.chain_ts]

    def holds(self, now_ms: int) -> list[Hold]:
        """The holds (see glossary) for the files whose grace time is over."""
        return [
            Hold(stage="damaged", store_id=str(known.store_id), object=known.key, reason=known.reason)
            for known in self.by_chain.values()
            if now_ms - known.first_ms >= GRACE_MS
        ]
