"""Runs transactions: decides when each prewrites, commits or rolls back. Mutable; no I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from tistream_upstream.config import ClusterConfig
from tistream_upstream.tikv.kv import Conflict, Kv, Mutation, Txn
from tistream_upstream.world import Action, World

_BATCH = 256  # keys per prewrite or commit request
_HEARTBEAT_MS = 1_000
_MUCH_LATER = 0.2  # share of remaining locks that wait `late_ms` for the next reader
_SOON_MS = 200
Rewrite = Callable[[Sequence[Mutation]], list[Mutation]]


class Session:
    """Runs transactions. `open` are those that have locks, or will have some."""

    def __init__(self, config: ClusterConfig, world: World, kv: Kv) -> None:
        self._mix = config.mix
        self._world = world
        self._kv = kv
        self._rng: random.Random = world.rng("session")
        self._fates: random.Random = world.rng("fates")
        self.open: set[Txn] = set()
        self.rewrite: Rewrite | None = None
        self.hurried = False
        self._due: dict[Txn, Action] = {}
        self._then: dict[Txn, Action] = {}
        self.begun = self.committed = self.rolled_back = 0

    def begin(self, txn: Txn) -> None:
        """Start a transaction with its mutations. How it runs and ends is chosen at random."""
        mix, rng = self._mix, self._rng
        self.begun += 1
        self.open.add(txn)
        for table in txn.tables:
            table.users.add(txn.start_ts)
        if rng.random() < mix.abandoned:
            self._abandon_later(txn)
            return
        if rng.random() < mix.lock_only and not txn.bulk:
            self._kv.touch([one.key for one in txn.mutations])
            self._later(txn, rng.randint(1, 20), lambda: self._end_lock_only(txn))
            return
        wait = rng.randint(*mix.long_ms) if rng.random() < mix.long else rng.randint(0, 3)
        if not txn.bulk and rng.random() < mix.one_phase and self._kv.one_region(txn):
            self._later(txn, wait, lambda: self._one_phase(txn))
            return
        txn.async_commit = not txn.bulk and len(txn.mutations) <= _BATCH and rng.random() < mix.async_commit
        self._later(txn, wait, lambda: self._prewrite(txn, 0))

    def run(self, txn: Txn, then: Action) -> None:
        """Run a transaction of a DDL job by two-phase commit, then call `then`."""
        self.begun += 1
        self.open.add(txn)
        self._then[txn] = then
        self._later(txn, self._rng.randint(0, 3), lambda: self._prewrite(txn, 0))

    def hurry(self) -> None:
        """Continue every waiting transaction within 50 ms, so that long ones end soon. From now on, remaining locks are
        resolved soon, too, and bulk transactions flush no further values."""
        self.hurried = True
        for txn, action in list(self._due.items()):
            self._world.after(self._rng.randint(0, 50), partial(self._wake, txn, action))

    def _later(self, txn: Txn, ms: int, action: Action) -> None:
        """Call `action` in `ms` milliseconds, to continue a transaction."""
        self._due[txn] = action
        self._world.after(ms, partial(self._wake, txn, action))

    def _wake(self, txn: Txn, action: Action) -> None:
        if self._due.get(txn) is action:  # otherwise `hurry` has run it already
            del self._due[txn]
            action()

    # -- one command ----------------------------------------------------------------------------------------------

    def _one_phase(self, txn: Txn) -> None:
        try:
            if not self._kv.one_region(txn):  # the region was split meanwhile
                self._prewrite(txn, 0)
                return
            self._kv.one_phase(txn)
        except Conflict:
            self._give_up(txn, 0)
            return
        self._ended(txn, committed=True)

    def _end_lock_only(self, txn: Txn) -> None:
        self._kv.touch([one.key for one in txn.mutations])
        self._kv.release(txn)
        self._ended(txn, committed=False)

    # -- two phases -----------------------------------------------------------------------------------------------

    def _prewrite(self, txn: Txn, at: int) -> None:
        """Prewrite one batch, which begins with the mutation `at`, and schedule what follows: the other
        batches, then the commit. A bulk transaction flushes again before its commit. The primary is in the
        first batch. It is the only key there, unless the transaction has more than _BATCH keys. A conflict
        rolls the transaction back."""
        batch = txn.mutations[at : at + (1 if at == 0 and len(txn.mutations) <= _BATCH else _BATCH)]
        if txn.bulk:
            for one in batch:
                one.generation = 1
            self._kv.heartbeat(txn)
        try:
            self._kv.prewrite(txn, batch)
        except Conflict:
            self._give_up(txn, at)
            return
        if at == 0:
            self._keep_alive(txn)
        at += len(batch)
        rng = self._rng
        if at < len(txn.mutations):
            huge = len(txn.mutations) > _BATCH
            self._later(txn, rng.randint(50, 700) if huge else rng.randint(0, 4), lambda: self._prewrite(txn, at))
        elif txn.bulk:
            self._later(txn, rng.randint(50, _HEARTBEAT_MS), lambda: self._flush_again(txn, 2))
        elif txn.async_commit:
            self._commit(txn)
        else:
            self._later(txn, rng.randint(0, 5), lambda: self._commit(txn))

    def _flush_again(self, txn: Txn, generation: int) -> None:
        rng = self._rng
        self._kv.heartbeat(txn)
        if self.rewrite is not None and generation < 6 and not self.hurried and rng.random() < 0.7:
            some = rng.sample(txn.mutations, min(len(txn.mutations), 1 + rng.randrange(_BATCH)))
            newer = self.rewrite(some)
            for one in newer:
                one.generation = generation
            self._kv.flush_again(txn, newer)
            by_key = {one.key: one for one in newer}
            txn.mutations = [by_key.get(one.key, one) for one in txn.mutations]
            wait = rng.randint(50, 2 * _HEARTBEAT_MS)
            self._later(txn, wait, lambda: self._flush_again(txn, generation + 1))
        elif rng.random() < 0.2:
            self._give_up(txn, len(txn.mutations))
        else:
            self._commit(txn)

    def _commit(self, txn: Txn) -> None:
        """Decide the commit, and commit the keys. In a two-phase commit the primary is committed at once, and the
        secondaries a little or much later; with async commit all keys are committed later."""
        self._kv.decide(txn)
        late = self._rng.random() < self._mix.late_secondaries
        if not txn.async_commit:
            self._kv.commit(txn, txn.mutations[:1])
        rest = txn.mutations if txn.async_commit else txn.mutations[1:]
        if late or not rest:
            self._resolve_later(txn, rest, self._mix.late_ms, committed=True)
            return
        self._later(txn, self._rng.randint(0, 10), lambda: self._commit_rest(txn, len(txn.mutations) - len(rest)))

    def _commit_rest(self, txn: Txn, at: int) -> None:
        batch = txn.mutations[at : at + _BATCH]
        self._kv.commit(txn, batch)
        if at + len(batch) < len(txn.mutations):
            self._later(txn, self._rng.randint(5, 50), lambda: self._commit_rest(txn, at + len(batch)))
        else:
            self._ended(txn, committed=True)

    # -- remaining locks -----------------------------------------------------------------------------------------------

    def _keep_alive(self, txn: Txn) -> None:
        """Write the primary's lock again and again while it exists, as heartbeats do."""
        if self._fates.random() < self._mix.rewritten:
            self._world.after(self._fates.randint(1, 8), partial(self._beat, txn, 8))

    def _beat(self, txn: Txn, wait_ms: int) -> None:
        if self._kv.rewrite_lock(txn):
            longer = min(_HEARTBEAT_MS, 2 * wait_ms)
            self._world.after(self._fates.randint(wait_ms, longer), partial(self._beat, txn, longer))

    def _resolve_later(self, txn: Txn, left: list[Mutation], wait_ms: tuple[int, int], *, committed: bool) -> None:
        """Commit or roll back the remaining locks of a transaction whose client died, a few at a time, as readers
        do."""
        if not left:
            self._ended(txn, committed=committed)
            return
        rng = self._fates
        wait = rng.randint(0, 50) if self.hurried else rng.randint(*wait_ms)
        some = rng.sample(left, min(_BATCH, 1 + rng.randrange(len(left))))
        self._later(txn, wait, lambda: self._resolve(txn, some, left, committed=committed))

    def _resolve(self, txn: Txn, some: list[Mutation], left: list[Mutation], *, committed: bool) -> None:
        if committed:
            self._kv.commit(txn, some)
        else:
            self._kv.rollback(txn, [one.key for one in some])
        ended = {one.key for one in some}
        wait_ms = self._mix.late_ms if self._fates.random() < _MUCH_LATER else (0, _SOON_MS)
        self._resolve_later(txn, [one for one in left if one.key not in ended], wait_ms, committed=committed)

    # -- giving up ------------------------------------------------------------------------------------------------

    def _abandon_later(self, txn: Txn) -> None:
        """Roll a transaction back, before its prewrites or after some of them."""
        rng = self._rng
        if rng.random() < 0.4:
            self._later(txn, rng.randint(1, 50), lambda: self._give_up(txn, 0))
            return
        some = 1 + rng.randrange(len(txn.mutations))

        def begin() -> None:
            try:
                self._kv.prewrite(txn, txn.mutations[:some])
            except Conflict:
                self._give_up(txn, 0)
                return
            self._keep_alive(txn)
            wait = rng.randint(1, 50) if rng.random() < 0.8 else rng.randint(500, 3_000)
            self._later(txn, wait, lambda: self._give_up(txn, some))

        self._later(txn, rng.randint(0, 5), begin)

    def _give_up(self, txn: Txn, locked: int) -> None:
        """Roll back the first `locked` keys, and sometimes a key that was not prewritten. At random the client counts
        as dead: then only the primary is rolled back now, and the other locked keys later, as readers do."""
        keys = [one.key for one in txn.mutations[:locked]]
        if locked > 1 and self._fates.random() < self._mix.orphaned:
            self._kv.release(txn)
            self._kv.rollback(txn, keys[:1])
            self._resolve_later(txn, txn.mutations[1:locked], self._mix.late_ms, committed=False)
            return
        if locked < len(txn.mutations) and self._rng.random() < 0.5:
            keys.append(txn.mutations[locked].key)
        self._kv.release(txn)
        if keys:
            self._kv.rollback(txn, keys)
        self._ended(txn, committed=False)

    def _ended(self, txn: Txn, *, committed: bool) -> None:
        self.open.discard(txn)
        for table in txn.tables:
            table.users.discard(txn.start_ts)
        then = self._then.pop(txn, None)
        if then is not None:
            assert committed, "transactions of the DDL owner have no conflicts"
            then()
        if committed:
            self.committed += 1
        else:
            self.rolled_back += 1
