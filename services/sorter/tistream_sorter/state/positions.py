"""A task's position in each chain of change files of each store, and which file may come next in a chain (design.md 2).
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tistream.format.manifest import ChainPosition
from tistream.wire.file_batch import FileRef

Positions = dict[int, tuple[ChainPosition, ...]]

# Chains of one store that are reported, closed ones included, because a dispatcher may not know that a chain is closed.
CHAINS_KEPT = 8
CHAINS_MAX = 1_024  # open chains of one store; a dispatcher begins at most 1,000 (tistream_dispatcher.stores.chain)


def follows(positions: Positions, ref: FileRef) -> bool:
    """Whether the file `ref` is the next of its chain, or the first file of a new chain."""
    chains = positions.get(ref.store_id, ())
    for chain in chains:
        if chain.first_ts == ref.chain_ts:
            return chain.at_ts == ref.prev_ts and ref.ts > chain.at_ts
    return ref.chain_ts == ref.ts and ref.prev_ts == 0


def has_room(positions: Positions, ref: FileRef) -> bool:
    """Whether the file's chain is known, or the store may begin one more chain."""
    chains = positions.get(ref.store_id, ())
    return len(chains) < CHAINS_MAX or any(chain.first_ts == ref.chain_ts for chain in chains)


def closed(positions: Positions, flushed_ts: int, ref: FileRef) -> bool:
    """Whether the file's chain is closed: a later chain of the store has begun, and its beginning is flushed. Nothing
    depends on such a file any more, and its dispatcher may delete it at any moment (design.md 2, docs/adr/0009)."""
    return any(ref.chain_ts < chain.first_ts <= flushed_ts for chain in positions.get(ref.store_id, ()))


def outlived(positions: Positions, flushed_ts: int, ref: FileRef) -> bool:
    """Whether the file's chain is closed, and the task has no position in it: the position was dropped, or no file of
    the chain ever came."""
    known = any(chain.first_ts == ref.chain_ts for chain in positions.get(ref.store_id, ()))
    return not known and closed(positions, flushed_ts, ref)


def moved(positions: Positions, ref: FileRef) -> Positions:
    """The positions after the file `ref` was accepted: the position in its chain is now the file's ts."""
    chains = positions.get(ref.store_id, ())
    kept = tuple(chain for chain in chains if chain.first_ts != ref.chain_ts)
    added = (*kept, ChainPosition(ref.chain_ts, ref.ts))
    return {**positions, ref.store_id: tuple(sorted(added, key=lambda chain: chain.first_ts))}


def without_closed(positions: Positions, flushed_ts: int, kept: int = CHAINS_KEPT) -> Positions:
    """The positions without the oldest closed chains of each store, so that a store has at most `kept` chains if
    possible.

    An open chain is never dropped, because a slice may wait for its late files (design.md 2). The newest chain that
    began at or below flushed_ts is not dropped either, because it defines which chains are closed.
    """
    return {store: _without_closed(chains, flushed_ts, kept) for store, chains in positions.items()}


def _without_closed(chains: tuple[ChainPosition, ...], flushed_ts: int, kept: int) -> tuple[ChainPosition, ...]:
    begun = sum(chain.first_ts <= flushed_ts for chain in chains)
    return chains[max(0, min(begun - 1, len(chains) - kept)) :]


def received(positions: Positions, durable: Positions, flushed_ts: int) -> Positions:
    """The positions of the inbox without the chains that the newest manifest has dropped. `durable`: the positions of
    that manifest."""
    return {store: _received(chains, durable.get(store, ()), flushed_ts) for store, chains in positions.items()}


def _received(
    chains: tuple[ChainPosition, ...], durable: tuple[ChainPosition, ...], flushed_ts: int
) -> tuple[ChainPosition, ...]:
    known = {chain.first_ts for chain in durable}
    closing_ts = max((first_ts for first_ts in known if first_ts <= flushed_ts), default=0)
    return tuple(chain for chain in chains if chain.first_ts >= closing_ts or chain.first_ts in known)


def common(several: Sequence[Mapping[int, tuple[ChainPosition, ...]]], flushed_ts: int) -> Positions:
    """The lowest positions of several tasks. Their child begins with these positions: files that only some of the tasks
    have received arrive again, as repeats.

    A chain that one of the tasks has not begun is left out, so that it is sent from its first file. The exception: that
    task has begun a later chain of the store, whose first file is at or below `flushed_ts`, up to which all of the
    tasks have flushed. Then nothing depends on the older chain, and the lowest position of the other tasks is kept.
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
    return _without_closed(tuple(ChainPosition(*pair) for pair in settled), flushed_ts, CHAINS_KEPT)


def _settled(first_ts: int, several: Sequence[tuple[ChainPosition, ...]], flushed_ts: int) -> bool:
    """Whether every task has begun the chain that begins at `first_ts`, or needs no file of it, because a later chain
    has replaced it."""
    return all(
        any(chain.first_ts == first_ts or first_ts < chain.first_ts <= flushed_ts for chain in chains)
        for chains in several
    )
