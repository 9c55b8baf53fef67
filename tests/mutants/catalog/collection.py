"""Which change files are deleted."""

from mutants.mutant import Mutant

CONSUMED = "services/dispatcher/tistream_dispatcher/consumed.py"
CHAIN = "services/dispatcher/tistream_dispatcher/chain.py"
COLLECTION = "services/dispatcher/tistream_dispatcher/collection.py"
RECEIVERS = "services/dispatcher/tistream_dispatcher/receivers.py"
FEED = "services/dispatcher/tistream_dispatcher/tenant_feed.py"
STATUS = "services/sorter/tistream_sorter/status.py"
TASK = "services/sorter/tistream_sorter/task.py"

CONSUMED_TESTS = "tests/unit/dispatcher/test_consumed.py"
MODEL = "tests/unit/dispatcher/test_consumed_model.py"
COLLECTION_TESTS = "tests/unit/dispatcher/test_collection.py"
POINTED_TESTS = "tests/unit/sorter/test_pointed_told.py"

MUTANTS = (
    Mutant(
        name="collect-deleted-though-pointed-into",
        invariants=(12,),
        breaks="files that pending rows point into are deleted",
        file=CONSUMED,
        old="    return Mark(chain_ts, min(through, later - 1, pointed - 1, under_way))\n",
        new="    return Mark(chain_ts, min(through, later - 1, under_way))\n",
        catchers=(MODEL, CONSUMED_TESTS),
    ),
    Mutant(
        name="collect-oldest-source-deleted",
        invariants=(12,),
        breaks="the oldest file that pending rows point into is deleted",
        file=CONSUMED,
        old="    return Mark(chain_ts, min(through, later - 1, pointed - 1, under_way))\n",
        new="    return Mark(chain_ts, min(through, later - 1, pointed, under_way))\n",
        catchers=(MODEL, CONSUMED_TESTS),
    ),
    Mutant(
        name="collect-deleted-that-a-tick-reads",
        invariants=(12,),
        breaks="a late file of a chain that was closed is deleted while it lies in a sorter's inbox",
        file=CONSUMED,
        old="    return Mark(chain_ts, min(through, later - 1, pointed - 1, under_way))\n",
        new="    return Mark(chain_ts, min(through, later - 1, pointed - 1))\n",
        catchers=(CONSUMED_TESTS,),
    ),
    Mutant(
        name="collect-consumed-by-those-that-told",
        invariants=(12, 14),
        breaks="files are deleted that a task needs of which nothing is known",
        file=CONSUMED,
        old="    if not needs or len(needs) < len(told):\n",
        new="    if not needs:\n",
        catchers=(MODEL, CONSUMED_TESTS),
    ),
    Mutant(
        name="collect-consumed-by-the-fastest",
        invariants=(12, 14),
        breaks="files are deleted as far as the fastest task is",
        file=CONSUMED,
        old="    through = min(at[chain_ts] for at in several)\n",
        new="    through = max(at[chain_ts] for at in several)\n",
        catchers=(MODEL, CONSUMED_TESTS),
    ),
    Mutant(
        name="collect-file-behind-the-position-deleted",
        invariants=(12,),
        breaks="files are deleted one ts beyond the lowest position",
        file=CONSUMED,
        old="    through = min(at[chain_ts] for at in several)\n",
        new="    through = min(at[chain_ts] for at in several) + 1\n",
        catchers=(CONSUMED_TESTS,),
    ),
    Mutant(
        name="collect-late-files-of-an-open-chain-deleted",
        invariants=(12,),
        breaks="what is before a new chain is deleted though late files of the one before are still waited for",
        file=CONSUMED,
        old="    chain_ts = max((first_ts for first_ts in begun if first_ts <= flushed_ts), default=None)\n",
        new="    chain_ts = max(begun, default=None)\n",
        catchers=(CONSUMED_TESTS,),
    ),
    Mutant(
        name="collect-strangers-deleted",
        invariants=(2, 12),
        breaks="a file that nobody has taken is deleted, because later ones were taken",
        file=CHAIN,
        old="        return ts <= self.through and (ts <= self.since or ts in self.taken)\n",
        new="        return ts <= self.through\n",
        catchers=(CONSUMED_TESTS,),
    ),
    Mutant(
        name="collect-deleted-while-an-older-chain-may-begin",
        invariants=(12,),
        breaks="a dispatcher deletes what it may still read",
        file=CHAIN,
        old="        if not self._chains or self._chains[0].first_ts != chain_ts or self.may_begin_older():\n",
        new="        if not self._chains or self._chains[0].first_ts != chain_ts:\n",
        catchers=(CONSUMED_TESTS,),
    ),
    Mutant(
        name="collect-durable-by-another-epochs-word",
        invariants=(12, 15),
        breaks="files are deleted by the word of who holds a task under another epoch than the routes say",
        file=RECEIVERS,
        old="        if status.task_epoch == epoch and status.pointed is not None:\n",
        new="        if status.pointed is not None:\n",
        catchers=(COLLECTION_TESTS,),
    ),
    Mutant(
        name="collect-sorters-that-do-not-say-point-nowhere",
        invariants=(12,),
        breaks="a sorter that does not say what it points into counts as one that points nowhere",
        file=RECEIVERS,
        old="        if status.task_epoch == epoch and status.pointed is not None:\n",
        new=(
            "        status = status.model_copy(update={'pointed': status.pointed or {}})\n"
            "        if status.task_epoch == epoch:\n"
        ),
        catchers=(COLLECTION_TESTS,),
    ),
    Mutant(
        name="collect-received-taken-for-consumed",
        invariants=(12, 13),
        breaks="files are deleted as soon as sorters have received them",
        file=RECEIVERS,
        old="            positions = positions_of(status.durable)\n",
        new="            positions = self.received[task_id]\n",
        catchers=(MODEL, COLLECTION_TESTS),
    ),
    Mutant(
        name="collect-stuck-behind-deleted-files",
        invariants=(21,),
        breaks="a dispatcher waits for ever for files that another has handed on and deleted",
        file=FEED,
        old="store.chains.positions()) or self._passed(store):\n",
        new="store.chains.positions()):\n",
        catchers=(COLLECTION_TESTS,),
    ),
    Mutant(
        name="collect-consumed-deleted-at-once",
        invariants=(12,),
        breaks="consumed files are deleted whatever their age",
        file=COLLECTION,
        old="            shelf, through = self._shelves[store], min(read.through, old_enough)\n",
        new="            shelf, through = self._shelves[store], max(read.through, old_enough)\n",
        catchers=(COLLECTION_TESTS,),
    ),
    Mutant(
        name="collect-store-at-rest-listed",
        invariants=(24,),
        breaks="every store is LISTed in every turn",
        file=COLLECTION,
        old="            if left and through >= shelf.first_ts and self._clock.monotonic_ms() >= shelf.next_ms:\n",
        new="            if left and self._clock.monotonic_ms() >= shelf.next_ms:\n",
        catchers=(COLLECTION_TESTS,),
    ),
    Mutant(
        name="collect-newest-source-told",
        invariants=(12,),
        breaks="a sorter tells the newest file that it points into, not the oldest",
        file=STATUS,
        old="            oldest[store] = min(ts, oldest.get(store, ts))\n",
        new="            oldest[store] = max(ts, oldest.get(store, ts))\n",
        catchers=(POINTED_TESTS,),
    ),
    Mutant(
        name="collect-heir-tells-what-it-has-not-written",
        invariants=(12,),
        breaks="an heir says what it points into before its first manifest says so",
        file=STATUS,
        old="        pointed=None if durable.inherited else pointed(durable.pending),\n",
        new="        pointed=pointed(durable.pending),\n",
        catchers=(POINTED_TESTS,),
    ),
    Mutant(
        name="collect-undurable-told-as-durable",
        invariants=(12, 13),
        breaks="what a sorter tells as durable is what it has taken since its last manifest, too",
        file=TASK,
        old="        return task_status(state, durable, received, holds, self.stopped)\n",
        new="        return task_status(state, state, received, holds, self.stopped)\n",
        catchers=(POINTED_TESTS,),
    ),
)
