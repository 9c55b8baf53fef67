"""Whatever becomes of a store's files, its chains and its tasks: what was deleted, no recovery asks for.

The dispatcher's chains, its positions and its decision are the real ones, and so are a sorter's positions and what
heirs take of their parents. The model makes up when files come, what ticks commit and point into, who is asked when,
and which tasks are split and merged. After each step every process dies in thought: dispatchers and sorters that come
back from the manifests alone must hand on and read the same files from what is left as from all that was ever pushed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.effort import examples
from tistream.wire.file_batch import FileRef
from tistream.wire.sorter import TaskStatus
from tistream_dispatcher.delivery.consumed import consumed
from tistream_dispatcher.delivery.receivers import Receivers
from tistream_dispatcher.stores.chain import SeenFile, StoreChains
from tistream_sorter.state.positions import Positions, common, follows, moved, outlived, received, without_closed
from tistream_sorter.task.status import chains as on_the_wire

STORE, EPOCH = 1, 5
KEPT = 2  # chains; closed ones beyond are let go
TASKS_MAX = 5


@dataclass(frozen=True)
class Durable:
    """A task's newest manifest, or, `inherited`, what its parents' seals say."""

    flushed_ts: int
    positions: Positions
    pointed: frozenset[int]
    inherited: bool = False


@dataclass
class Task:
    durable: Durable
    received: Positions
    inbox: list[int] = field(default_factory=list)

    def status(self, task_id: int) -> TaskStatus:
        durable = self.durable
        oldest = {STORE: min(durable.pointed)} if durable.pointed else {}
        return TaskStatus(
            cluster_id="7",
            tenant_id="acme",
            task_id=task_id,
            task_epoch=EPOCH,
            start_key="",
            end_key="",
            manifest=1,
            checkpoint=0,
            flushed_ts=durable.flushed_ts,
            progress_ts=durable.flushed_ts,
            received=on_the_wire(self.received),
            durable=on_the_wire(durable.positions),
            pending_rows=0,
            pending_bytes=0,
            counters={},
            pointed=None if durable.inherited else oldest,
        )


def ref(file: SeenFile, chain_ts: int) -> FileRef:
    return FileRef("7", "acme", STORE, file.ts, file.prev_ts, chain_ts, f"k{file.ts}", 9, 8, 7, (), {})


def handed_on(files: dict[int, SeenFile], receivers: Receivers) -> tuple[StoreChains, list[FileRef]]:
    """What a dispatcher that has just begun takes of these files, in order."""
    chains = StoreChains(receivers.lowest_positions(STORE))
    chains.close(receivers.flushed_ts())
    for ts in sorted(files):
        if chains.must_read(ts):
            chains.see(files[ts])
    out = []
    while (ready := chains.ready()) is not None:
        chains.advance(ready)
        out.append(ref(ready.file, ready.chain_ts))
    return chains, out


class Collecting(RuleBasedStateMachine):
    """One store. `route`: the tasks that the dispatcher knows of; `tasks`: those that there are."""

    def __init__(self) -> None:
        super().__init__()
        self.pushed: dict[int, SeenFile] = {}
        self.there: dict[int, SeenFile] = {}
        self.late: list[SeenFile] = []
        self.last_ts, self.prev_ts, self.next_id = 0, 0, 3
        begun = Durable(0, {}, frozenset())
        self.tasks = {task_id: Task(begun, {}) for task_id in (1, 2)}
        self.sealed: dict[int, Durable] = {}
        self.route = [1, 2]
        self.receivers = Receivers()

    # -- the store ------------------------------------------------------------------------------------------------

    @rule(late=st.integers(0, 3))
    def push(self, late: int) -> None:
        self.last_ts += 10
        file = SeenFile(self.last_ts, self.prev_ts, fresh=not self.prev_ts)
        self.prev_ts = self.last_ts
        if late == 3:
            self.late.append(file)
        else:
            self._arrive(file)

    @rule()
    def restart(self) -> None:
        """What it pushes next begins a new chain."""
        self.prev_ts = 0

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def come_late(self, data: st.DataObject) -> None:
        self._arrive(self.late.pop(data.draw(st.integers(0, len(self.late) - 1))))

    def _arrive(self, file: SeenFile) -> None:
        self.pushed[file.ts] = self.there[file.ts] = file

    # -- sorters --------------------------------------------------------------------------------------------------

    def _some(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.tasks)))

    @rule(data=st.data(), flush=st.integers(0, 6), pointers=st.integers(0, 2), forgets=st.booleans())
    def tick(self, data: st.DataObject, flush: int, pointers: int, forgets: bool) -> None:
        self._tick(self.tasks[self._some(data)], flush, pointers, forgets)

    @rule(flush=st.integers(0, 6), pointers=st.integers(0, 1), forgets=st.booleans())
    def all_tick(self, flush: int, pointers: int, forgets: bool) -> None:
        for task in self.tasks.values():
            self._tick(task, flush, pointers, forgets)

    def _tick(self, task: Task, flush: int, pointers: int, forgets: bool) -> None:
        """A manifest: of all that has come, or only the progress."""
        missing = [ts for ts in task.inbox if ts not in self.there]
        assert not missing, f"a tick reads {missing}, which are deleted"
        pointed = frozenset() if forgets else task.durable.pointed
        pointed |= frozenset(task.inbox[:pointers])
        flushed_ts = max(task.durable.flushed_ts, self.last_ts - 10 * flush)
        task.durable = Durable(flushed_ts, without_closed(task.received, flushed_ts, KEPT), pointed)
        task.received = received(task.received, task.durable.positions, flushed_ts)
        task.inbox = []

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        task = self.tasks[self._some(data)]
        task.received, task.inbox = task.durable.positions, []

    @precondition(lambda self: len(self.tasks) < TASKS_MAX)
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        parent = self._seal(self._some(data))
        for pointed in (parent.pointed, frozenset(sorted(parent.pointed)[::2])):
            self._begin(replace(parent, pointed=pointed, inherited=True))

    @precondition(lambda self: len(self.tasks) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        one, other = data.draw(st.permutations(sorted(self.tasks)))[:2]
        flushed_ts = max(self.tasks[task_id].durable.flushed_ts for task_id in (one, other))
        seals = [self._seal(task_id) for task_id in (one, other)]
        ended = [without_closed(seal.positions, flushed_ts, KEPT) for seal in seals]
        positions = common(ended, flushed_ts)
        self._begin(Durable(flushed_ts, positions, seals[0].pointed | seals[1].pointed, inherited=True))

    def _seal(self, task_id: int) -> Durable:
        ended = self.tasks.pop(task_id).durable
        self.sealed[task_id] = ended
        return ended

    def _begin(self, durable: Durable) -> None:
        self.tasks[self.next_id] = Task(durable, durable.positions)
        self.next_id += 1

    # -- the dispatcher -------------------------------------------------------------------------------------------

    @rule()
    def follow_routes(self) -> None:
        self.receivers.keep_only(self.tasks.keys() & set(self.route))
        self.route = sorted(self.tasks)

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        for task_id in data.draw(st.sets(st.sampled_from(self.route), min_size=1)):
            if task_id in self.tasks:
                self.receivers.set_status(self.tasks[task_id].status(task_id), EPOCH)

    @rule(count=st.integers(1, 6))
    def deliver(self, count: int) -> None:
        """To all that are known, by one that knows no more than it was told."""
        for file in handed_on(self.there, self.receivers)[1][:count]:
            for task_id in self.receivers.received.keys() & self.tasks.keys():
                task = self.tasks[task_id]
                durable = task.durable
                if not outlived(durable.positions, durable.flushed_ts, file) and follows(task.received, file):
                    task.received = moved(task.received, file)
                    task.inbox.append(file.ts)
                self.receivers.set_received(task_id, on_the_wire(task.received))

    @rule()
    def start_anew(self) -> None:
        self.receivers = Receivers()

    @initialize()
    def begin(self) -> None:
        for _ in range(3):
            self.settle()

    @rule()
    def settle(self) -> None:
        """All that came is handed on and committed, and the next file comes."""
        self.follow_routes()
        self._request_all()
        self.deliver(100)
        self.all_tick(0, 0, False)
        self.push(0)

    def _request_all(self) -> None:
        for task_id, task in self.tasks.items():
            self.receivers.set_status(task.status(task_id), EPOCH)

    @rule(asked=st.booleans())
    def collect(self, asked: bool) -> None:
        if asked:
            self.follow_routes()
            self._request_all()
        mark = consumed(self.receivers.needs(self.route), STORE)
        if mark is None:
            return
        read = handed_on(self.there, self.receivers)[0].read(mark.chain_ts, mark.through)
        if read is not None:
            self.there = {ts: file for ts, file in self.there.items() if ts not in read}

    @rule(data=st.data())
    def collect_knowing_some(self, data: st.DataObject) -> None:
        """By a dispatcher that has just begun, and was told by some sorters."""
        self.receivers = Receivers()
        self.follow_routes()
        for task_id in data.draw(st.sets(st.sampled_from(self.route), min_size=1)):
            self.receivers.set_status(self.tasks[task_id].status(task_id), EPOCH)
        self.collect(False)

    # -- what must be so ------------------------------------------------------------------------------------------

    @invariant()
    def what_is_pointed_into_is_there(self) -> None:
        for task_id, task in self.tasks.items():
            missing = [ts for ts in task.durable.pointed if ts not in self.there]
            assert not missing, f"task {task_id} points into {missing}, which are deleted"

    @invariant()
    def a_recovery_finds_what_it_needs(self) -> None:
        assert self._recovered(self.there) == self._recovered(self.pushed)

    def _recovered(self, files: dict[int, SeenFile]) -> dict[int, list[int]]:
        """Which files each task would take, everybody having nothing but the manifests. Those of chains that are closed
        are left out: nobody needs them."""
        receivers = Receivers()
        at = {task_id: task.durable.positions for task_id, task in self.tasks.items()}
        for task_id, task in self.tasks.items():
            receivers.set_status(replace_received(task.status(task_id)), EPOCH)
        flushed_ts = receivers.flushed_ts()
        begun = {chain.first_ts for positions in at.values() for chain in positions.get(STORE, ())}
        closed = max((first_ts for first_ts in begun if first_ts <= flushed_ts), default=0)
        taken: dict[int, list[int]] = {task_id: [] for task_id in self.tasks}
        for file in handed_on(files, receivers)[1]:
            if file.chain_ts < closed:
                continue
            for task_id in self.tasks:
                here = self.tasks[task_id].durable
                if not outlived(here.positions, here.flushed_ts, file) and follows(at[task_id], file):
                    at[task_id] = moved(at[task_id], file)
                    taken[task_id].append(file.ts)
        return taken


def replace_received(status: TaskStatus) -> TaskStatus:
    return status.model_copy(update={"received": status.durable})


TestCollecting = Collecting.TestCase
TestCollecting.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
