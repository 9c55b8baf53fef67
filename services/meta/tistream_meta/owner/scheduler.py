"""Executes what decide/task_policy.py (which node gets a task) and decide/split_merge.py have decided, and the requests
of operators.

Urgent steps are executed as soon as something about a task changes: its sorter's report, the state of a node, or its
row. Balancing, splits and merges look at all tasks together, from time to time. The pause grows with the number of
tasks, so that the owner's work per second does not grow with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tistream.errors import InvalidRequest, UnknownName
from tistream_meta.database.repository import Repository
from tistream_meta.decide import split_merge as seals
from tistream_meta.decide.balance import NodeLoads
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Change, Child, Seal, Task
from tistream_meta.decide.scheduling_rules import SchedulingRules
from tistream_meta.decide.task_phases import Phase, PhaseEvent, Placement, WrongStep
from tistream_meta.decide.task_policy import Command, alive, expected_loads, spread, urgent
from tistream_meta.owner.owner_copy import OwnerCopy
from tistream_meta.owner.reports import Reports

log = logging.getLogger(__name__)

SPREAD_MS = 500  # between two passes over all tasks
SPREAD_MS_A_TASK = 0.1  # added to that pause for each task
TASK_LOAD = 1_000.0  # bytes per second that count for any task, because its ticks have a cost even without input
AGAIN_PART = 5  # while the budget held moves back, the pause is divided by this, because other moves may have ended

States = Mapping[str, NodeState]


class Scheduler:
    """Decides with the owner's copy of the database, and writes the result. Not thread-safe. Times are monotonic ms.
    The calls for operators raise UnknownName, and InvalidRequest if the request cannot be executed."""

    def __init__(self, repository: Repository, reports: Reports, rules: SchedulingRules) -> None:
        self._repository, self._reports, self._rules = repository, reports, rules
        self._news: set[int] = set()  # tasks that have changed and were not looked at since
        self._homeless: set[int] = set()  # tasks that were looked at while no sorter was alive
        self._loads = NodeLoads({})
        self._spread_at_ms: float = 0
        self._ordered_ms: dict[int, int] = {}  # task -> when this owner learned of the order to seal it
        self._withdrawn_ms: dict[int, int] = {}  # task -> when a merge of it was withdrawn last
        self._impossible: set[int] = set()  # children whose ids other tasks have; each was logged

    def touch(self, task_ids: Iterable[int]) -> None:
        """Mark tasks as changed, so that the next step examines them."""
        self._news.update(task_ids)

    def step(self, book: OwnerCopy, states: States, now_ms: int) -> Iterator[Change]:
        """Compute and write the steps that are due, one at a time. Yields what each has changed. The caller must apply
        each change to the owner's copy before it requests the next."""
        yield from self._look_after_seals(book, now_ms)
        sorters = {node: states[node] for node in book.of_role("sorter")}
        there = alive(sorters)
        if there:
            self._news |= self._homeless
            self._homeless.clear()
        news = [book.tasks[task_id] for task_id in sorted(self._news) if task_id in book.tasks]
        self._news.clear()
        if news:
            self._loads = self._loads.among(there)
            placements = [self._reports.placement(task) for task in news]
            if not there:
                self._homeless.update(task.task_id for task in placements)
            yield from self._command(urgent(placements, sorters, self._known_loads(news, now_ms), self._loads))
            yield from self._above_the_manifests(book, news)
        if now_ms >= self._spread_at_ms:
            yield from self._look_at_everything(book, sorters, now_ms)

    def _above_the_manifests(self, book: OwnerCopy, news: Iterable[Task]) -> Iterator[Change]:
        tasks = [book.tasks[task.task_id] for task in news if task.task_id in book.tasks]
        claimed = {task.task_id: by for task in tasks if (by := self._reports.claimed_by(task)) is not None}
        if claimed:
            log.warning("manifests have newer epochs than the database", extra={"tasks": len(claimed)})
            yield self._repository.raise_epochs(claimed)

    def _look_at_everything(self, book: OwnerCopy, sorters: States, now_ms: int) -> Iterator[Change]:
        tasks = book.in_order()
        load = self._known_loads(tasks, now_ms)
        placements = [self._reports.placement(task) for task in tasks]
        there = alive(sorters)
        self._loads = expected_loads(there, placements, load)
        limits = replace(self._rules.moves, moves_max=max(self._rules.moves.moves_max, len(there)))
        # A new owner receives the first reports one after the other. Sorters without a report are not idle.
        commands = spread(placements, sorters, load, self._loads, limits) if self._reports.has_reports_of(there) else []
        self._reports.keep(book.tasks)
        pause_ms = SPREAD_MS + SPREAD_MS_A_TASK * len(tasks)
        self._spread_at_ms = now_ms + (pause_ms / AGAIN_PART if commands else pause_ms)
        # Urgent steps were taken already, unless a change was missed.
        yield from self._command([*urgent(placements, sorters, load, self._loads), *commands])
        tasks = book.in_order()
        reported = {task.task_id: self._reports.last_report(task, now_ms) for task in tasks}
        # Parents without an order, as far as a restored database knows, did not change at the same time, so the pass
        # over changed tasks does not find them.
        if ended := self._possible(book, seals.successions(tasks, reported)):
            yield from self._carry_on(ended)
            return
        if again := seals.forgotten(tasks, reported):
            yield from self._take_orders(again)
            return
        pause_ms = self._rules.seals.pause_ms
        self._withdrawn_ms = {task: at for task, at in self._withdrawn_ms.items() if now_ms - at < pause_ms}
        ages_ms = self._ages_ms(now_ms)
        found = seals.proposals(tasks, reported, len(there), self._rules.seals, ages_ms, self._withdrawn_ms)
        orders = [self._order(proposal) for proposal in found]
        yield from self._take_orders(orders)

    def _known_loads(self, tasks: Iterable[Task], now_ms: int) -> dict[int, float]:
        return {task.task_id: TASK_LOAD + self._reports.load(task, now_ms) for task in tasks}

    def _command(self, commands: Sequence[Command]) -> Iterator[Change]:
        if not commands:
            return
        change = self._repository.execute_moves(commands)
        for step in PhaseEvent:
            of_step = [command for command in commands if command.step is step]
            if of_step:
                nodes = sorted({command.node for command in of_step if command.node})[:10]
                why = sorted({command.why for command in of_step})[:3]
                log.info("tasks", extra={"step": step.value, "tasks": len(of_step), "nodes": nodes, "why": why})
        yield change

    # -- what operators ask for ----------------------------------------------------------------------------------

    def move(self, book: OwnerCopy, states: States, task_id: int, node_id: str) -> Change | None:
        """Write that a task will move to a sorter, which then prepares to take it over. Returns None if the sorter is
        preparing already. Raises InvalidRequest if the node is not a sorter that is alive, or if the task cannot move
        now."""
        task = _find(book, task_id)
        if task.next_node == node_id:
            return None
        if states.get(node_id) is not NodeState.ALIVE or node_id not in book.of_role("sorter"):
            raise InvalidRequest(
                f"{node_id} is not a sorter that is alive: `tistream node list` has them", {"parameter": "node_id"}
            )
        try:
            self._reports.placement(task).after(PhaseEvent.PREPARE, node_id)
        except WrongStep as error:
            raise InvalidRequest(str(error)) from error
        return self._repository.execute_moves(
            [Command(task_id, PhaseEvent.PREPARE, node_id, "requested by an operator")], by_operator=True
        )

    def split(
        self, book: OwnerCopy, task_id: int, key: bytes | None, now_ms: int
    ) -> tuple[Change | None, tuple[int, ...]]:
        """Order a task to be split at `key`; None: at the key that halves its load. Returns (the change, the ids of the
        children). If the same split is ordered already, the change is None, because the first answer may have been
        lost. Raises InvalidRequest if the task is not running, has another order, or cannot be split there."""
        seal = _find(book, task_id).seal
        if seal is not None and not seal.merges and (key is None or seal.children[1].span.start == key):
            return None, tuple(_ids(seal.children))
        task, reported = self._working(book, task_id, now_ms)
        at = reported.split_key if key is None else key
        if not at:
            reason = f"task {task_id}: its sorter knows no key that halves its load; give one"
            raise InvalidRequest(reason, {"parameter": "key"})
        spans = seals.halves(task.span, at)
        if spans is None:
            raise InvalidRequest(
                f"key {at.hex()} does not lie inside the span of task {task_id}: `tistream task list` has the spans",
                {"parameter": "key"},
            )
        return self._ask(seals.SealProposal((task_id,), spans, None, "requested by an operator"))

    def merge(self, book: OwnerCopy, task_id: int, other_id: int, now_ms: int) -> tuple[Change | None, tuple[int, ...]]:
        """Order two neighbouring tasks to be merged. Returns (the change, the id of their child as a tuple of one). If
        the same merge is ordered already, the change is None. Raises InvalidRequest if they are not neighbours, are not
        running, or have another order."""
        seal = _find(book, task_id).seal
        if seal is not None and seal.merges and task_id != other_id and _find(book, other_id).seal == seal:
            return None, tuple(_ids(seal.children))
        pair = [self._working(book, one, now_ms) for one in (task_id, other_id)]
        (left, ours), (right, theirs) = sorted(pair, key=lambda one: one[0].span.start)
        if left.tenant != right.tenant or not left.span.end or left.span.end != right.span.start:
            raise InvalidRequest(
                f"tasks {task_id} and {other_id} are not neighbours: `tistream task list` has the tasks in key order",
                {"parameter": "neighbour"},
            )
        return self._ask(seals.merge(left, right, ours, theirs, "requested by an operator"))

    def placements(self, book: OwnerCopy, now_ms: int) -> list[tuple[Task, Placement, float]]:
        """Every task with its placement and its load in bytes per second."""
        return [(task, self._reports.placement(task), self._reports.load(task, now_ms)) for task in book.in_order()]

    def _ask(self, proposal: seals.SealProposal) -> tuple[Change, tuple[int, ...]]:
        order = self._order(proposal)
        assert order.seal is not None
        (change,) = self._take_orders([order], by_operator=True)
        return change, tuple(_ids(order.seal.children))

    def _working(self, book: OwnerCopy, task_id: int, now_ms: int) -> tuple[Task, seals.SorterReport]:
        """Return (the task, the last report about it) if the task is running and has no order to split or merge. Raises
        UnknownName, and InvalidRequest otherwise."""
        task = _find(book, task_id)
        if task.seal is not None:
            raise InvalidRequest(f"task {task_id} is about to be split or merged already: wait until that has ended")
        if (phase := self._reports.placement(task).phase) is not Phase.RUNNING:
            raise InvalidRequest(
                f"task {task_id} is {phase.value}: only a running one can be split or merged: retry once it runs"
            )
        return task, self._reports.last_report(task, now_ms)

    # -- splits and merges ---------------------------------------------------------------------------------------

    def _look_after_seals(self, book: OwnerCopy, now_ms: int) -> Iterator[Change]:
        """Replace sealed tasks by their children, and write the next steps of merges in progress."""
        ended = seals.successions(*self._concerned(book, book.sealing | self._news, now_ms))
        yield from self._carry_on(self._possible(book, ended))
        self._ordered_ms = {task_id: self._ordered_ms.get(task_id, now_ms) for task_id in book.sealing}
        age_ms = self._ages_ms(now_ms)
        ordered, reported = self._concerned(book, book.sealing, now_ms)
        orders = seals.under_way(ordered, reported, age_ms, self._rules.seals)
        for task_id in [task_id for order in orders if order.seal is None for task_id in order.task_ids]:
            del self._ordered_ms[task_id]  # its next order has a new age
            self._withdrawn_ms[task_id] = now_ms
        yield from self._take_orders(orders)

    def _ages_ms(self, now_ms: int) -> dict[int, int]:
        return {task_id: now_ms - since_ms for task_id, since_ms in self._ordered_ms.items()}

    def _carry_on(self, ended: Sequence[seals.Succession]) -> Iterator[Change]:
        if not ended:
            return
        change = self._repository.replace_sealed(ended)
        for one in ended:
            log.info("tasks carry on", extra={"parents": one.parents, "children": _ids(one.children)})
        yield change

    def _possible(self, book: OwnerCopy, ended: Sequence[seals.Succession]) -> list[seals.Succession]:
        """The successions that can be stored. The others name children whose ids other tasks have: a restored database
        assigned these ids again before the restore was noticed. They must not block the successions of other tenants,
        so they are logged and skipped."""
        out = []
        for one in ended:
            taken = [child.task_id for child in one.children if child.task_id in book.tasks]
            if not taken:
                out.append(one)
            elif not self._impossible.issuperset(taken):
                self._impossible.update(taken)
                log.error(
                    "sealed tasks cannot carry on: ids of their children are those of other tasks",
                    extra={"tenant": str(one.tenant), "parents": one.parents, "ids": taken},
                )
        return out

    def _concerned(
        self, book: OwnerCopy, task_ids: Iterable[int], now_ms: int
    ) -> tuple[list[Task], dict[int, seals.SorterReport]]:
        tasks = [book.tasks[task_id] for task_id in sorted(task_ids) if task_id in book.tasks]
        return tasks, {task.task_id: self._reports.last_report(task, now_ms) for task in tasks}

    def _order(self, proposal: seals.SealProposal) -> seals.TaskOrder:
        first = self._repository.new_task_ids(len(proposal.spans))
        children = tuple(Child(first + at, span) for at, span in enumerate(proposal.spans))
        stop_at = None if proposal.stop_at is None else seals.unique_stop_at(proposal.stop_at, children[0])
        return seals.TaskOrder(proposal.task_ids, Seal(children, stop_at, final=stop_at is None), proposal.why)

    def _take_orders(self, orders: Sequence[seals.TaskOrder], *, by_operator: bool = False) -> Iterator[Change]:
        if not orders:
            return
        change = self._repository.order_seals(orders, by_operator=by_operator)
        for one in orders:
            children = _ids(one.seal.children) if one.seal else []
            log.info("seal", extra={"tasks": one.task_ids, "children": children, "why": one.why})
        yield change


def _find(book: OwnerCopy, task_id: int) -> Task:
    task = book.tasks.get(task_id)
    if task is None:
        raise UnknownName(f"there is no task {task_id}: `tistream task list` has the ids")
    return task


def _ids(children: Iterable[Child]) -> list[int]:
    return [child.task_id for child in children]
