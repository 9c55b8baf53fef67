"""Where a task is in its stores' chains of files, and what follows (design.md 2). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tistream.format.manifest import ChainPosition
from tistream.wire.file_batch import FileRef

Positions = dict[int, tuple[ChainPosition, ...]]

CHAINS_MAX = 8  # open chains of one store; an older one has been replaced by as many restarts


def follows(positions: Positions, ref: FileRef) -> bool:
    """Whether `ref` is the next file of its chain, or the first of a new one."""
    chains = positions.get(ref.store_id, ())
    for chain in chains:
        if chain.first_ts == ref.chain_ts:
            return chain.at_ts == ref.prev_ts and ref.ts > chain.at_ts
    return ref.chain_ts == ref.ts and ref.prev_ts == 0


def closed(positions: Positions, flushed_ts: int, ref: FileRef) -> bool:
    """Whether the file is a late one of a chain in whose place another has come, flushed through its beginning: nothing
    rests on it any more, and its dispatcher may delete it at any moment (design.md 2, docs/adr/0009)."""
    return any(ref.chain_ts < chain.first_ts <= flushed_ts for chain in positions.get(ref.store_id, ()))


def moved(positions: Positions, ref: FileRef) -> Positions:
    """The positions once `ref` is taken."""
    chains = positions.get(ref.store_id, ())
    kept = tuple(chain for chain in chains if chain.first_ts != ref.chain_ts)
    added = (*kept, ChainPosition(ref.chain_ts, ref.ts))
    return {**positions, ref.store_id: tuple(sorted(added, key=lambda chain: chain.first_ts))[-CHAINS_MAX:]}


def common(several: Sequence[Mapping[int, tuple[ChainPosition, ...]]], flushed_ts: int) -> Positions:
    """Where all of several tasks have been: what one of them alone has taken comes again, for it as a repeat.

    A chain that some task has not begun is left out, so that it comes from its first file; unless that task has a later
    one, and all have flushed through where that begins: then nothing rests on the older one any more, nobody sends it,
    and the position of those who have it is kept (design.md 2).
    """
    stores = {store for positions in several for store in positions}
    found = {
        store: _common([positions.get(store, ()) for positions in several], flushed_ts) for store in sorted(stores)
    }
    return {store: chains for store, chains in found.items() if chains}


def _common(several: Sequence[tuple[ChainPosition, ...]], flushed_ts: int) -> tuple[ChainPosition, ...]:
    lowest: dict[int, int] = {}
    for chain in (chain for chains in several for chain in chains):
        lowest[chain.first_ts] = min(chain.at_ts, lowest.get(chain.first_ts, chain.at_ts))
    settled = [
        (first_ts, at_ts) for first_ts, at_ts in sorted(lowest.items()) if _settled(first_ts, several, flushed_ts)
    ]
    return tuple(ChainPosition(first_ts, at_ts) for first_ts, at_ts in settled)[-CHAINS_MAX:]


def _settled(first_ts: int, several: Sequence[tuple[ChainPosition, ...]], flushed_ts: int) -> bool:
    """Whether every task has begun the chain, or needs it no more."""
    return all(
        any(chain.first_ts == first_ts or first_ts < chain.first_ts <= flushed_ts for chain in chains)
        for chains in several
    )
