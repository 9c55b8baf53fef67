"""Brings the tasks to where the policies and operators want them: writes what the pure modules decide."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tistream.errors import InvalidRequest, UnknownName
from tistream_meta import seals
from tistream_meta.liveness import NodeState
from tistream_meta.model import Child, Plan, Seal, Task
from tistream_meta.placement import Phase, Placement, Step, WrongStep
from tistream_meta.policies import DEFAULT_LIMITS, Command, Limits, schedule
from tistream_meta.reports import Reports
from tistream_meta.repository import Repository

log = logging.getLogger(__name__)

States = Mapping[str, NodeState]


@dataclass(frozen=True, slots=True)
class Rules:
    """How much is moved at a time, and what is split and merged."""

    moves: Limits = DEFAULT_LIMITS
    seals: seals.Rules = seals.DEFAULT_RULES


class Scheduler:
    """Works on the plan that it is given. Not thread-safe. Times are monotonic milliseconds.

    What operators ask for raises UnknownName, or InvalidRequest where it cannot be.
    """

    def __init__(self, repository: Repository, reports: Reports, rules: Rules) -> None:
        self._repository, self._reports, self._rules = repository, reports, rules
        self._ordered_ms: dict[int, int] = {}  # task -> since when this owner knows of the order to seal it

    def step(self, plan: Plan, states: States, now_ms: int) -> bool:
        """Do what is due; whether anything was written."""
        sealed = self._look_after_seals(plan, states, now_ms)
        if sealed:
            plan = self._repository.plan()
        commands = self._due(plan, states)
        if commands:
            self._repository.take(commands)
            _tell(commands)
        return bool(sealed or commands)

    def move(self, plan: Plan, states: States, task_id: int, node_id: str) -> None:
        """Let a sorter prepare to take a task over."""
        task = _find(plan, task_id)
        if states.get(node_id) is not NodeState.ALIVE or node_id not in _sorters(plan):
            raise InvalidRequest(f"{node_id} is no sorter that is alive", {"parameter": "node_id"})
        try:
            self._reports.placement(task).after(Step.PREPARE, node_id)
        except WrongStep as error:
            raise InvalidRequest(str(error)) from error
        self._repository.take([Command(task_id, Step.PREPARE, node_id, "asked for")])

    def split(self, plan: Plan, task_id: int, key: bytes | None, now_ms: int) -> tuple[int, ...]:
        """Order a task to be split at a key, or where its load halves; the ids of its children."""
        task, told = self._working(plan, task_id, now_ms)
        at = told.split_key if key is None else key
        if not at:
            reason = f"task {task_id}: its sorter knows no key that halves its load; give one"
            raise InvalidRequest(reason, {"parameter": "key"})
        spans = seals.halves(task.span, at)
        if spans is None:
            raise InvalidRequest(f"key {at.hex()} does not cut task {task_id}", {"parameter": "key"})
        return self._take_orders([self._order(seals.Wish((task_id,), spans, None, "asked for"))])

    def merge(self, plan: Plan, task_id: int, other_id: int, now_ms: int) -> tuple[int, ...]:
        """Order two neighbours to be merged; the id of their child."""
        pair = [self._working(plan, one, now_ms) for one in (task_id, other_id)]
        (left, ours), (right, theirs) = sorted(pair, key=lambda one: one[0].span.start)
        if left.tenant != right.tenant or not left.span.end or left.span.end != right.span.start:
            raise InvalidRequest(f"tasks {task_id} and {other_id} are no neighbours", {"parameter": "neighbour"})
        return self._take_orders([self._order(seals.merge(left, right, ours, theirs, "asked for"))])

    def placements(self, plan: Plan) -> list[tuple[Task, Placement, float | None]]:
        """Every task, where it is, and its load if that is known."""
        return [(task, self._reports.placement(task), self._reports.load(task)) for task in plan.tasks]

    def _working(self, plan: Plan, task_id: int, now_ms: int) -> tuple[Task, seals.Told]:
        """A task that works and is not about to change."""
        task = _find(plan, task_id)
        if task.seal is not None:
            raise InvalidRequest(f"task {task_id} is about to be split or merged already")
        if (phase := self._reports.placement(task).phase) is not Phase.RUNNING:
            raise InvalidRequest(f"task {task_id} is {phase.value}: only a running one can be split or merged")
        return task, self._reports.told(task, now_ms)

    def _look_after_seals(self, plan: Plan, states: States, now_ms: int) -> bool:
        """Children for what is sealed, and orders for what is to be; whether anything was written."""
        rules = self._rules.seals
        told = {task.task_id: self._reports.told(task, now_ms) for task in plan.tasks}
        ended = seals.carried_on(plan.tasks, told)
        if ended:
            self._repository.carry_on(ended)
        for one in ended:
            log.info("tasks carry on", extra={"parents": one.parents, "children": _ids(one.children)})
        ordered = [task.task_id for task in plan.tasks if task.seal is not None]
        self._ordered_ms = {task_id: self._ordered_ms.get(task_id, now_ms) for task_id in ordered}
        age_ms = {task_id: now_ms - since_ms for task_id, since_ms in self._ordered_ms.items()}
        orders = seals.under_way(plan.tasks, told, age_ms, rules)
        alive = sum(states.get(node) is NodeState.ALIVE for node in _sorters(plan))
        orders += [self._order(wish) for wish in seals.wishes(plan.tasks, told, alive, rules)]
        self._take_orders(orders)
        return bool(ended or orders)

    def _order(self, wish: seals.Wish) -> seals.Order:
        first = self._repository.new_task_ids(len(wish.spans))
        children = tuple(Child(first + at, span) for at, span in enumerate(wish.spans))
        return seals.Order(wish.task_ids, Seal(children, wish.stop_at, final=wish.stop_at is None), wish.why)

    def _take_orders(self, orders: Sequence[seals.Order]) -> tuple[int, ...]:
        """The children of all of them."""
        if orders:
            self._repository.order(orders)
        found: list[int] = []
        for one in orders:
            children = _ids(one.seal.children) if one.seal else []
            log.info("seal", extra={"tasks": one.task_ids, "children": children, "why": one.why})
            found += children
        return tuple(found)

    def _due(self, plan: Plan, states: States) -> list[Command]:
        sorters = {node: states[node] for node in _sorters(plan)}
        loads = ((task.task_id, self._reports.load(task)) for task in plan.tasks)
        return schedule(
            [self._reports.placement(task) for task in plan.tasks],
            sorters,
            {task_id: load for task_id, load in loads if load is not None},
            self._rules.moves,
        )


def _tell(commands: Sequence[Command]) -> None:
    for step in Step:
        of_step = [command for command in commands if command.step is step]
        if of_step:
            nodes = sorted({command.node for command in of_step if command.node})
            why = sorted({command.why for command in of_step})[:3]
            log.info("tasks", extra={"step": step.value, "tasks": len(of_step), "nodes": nodes, "why": why})


def _find(plan: Plan, task_id: int) -> Task:
    task = next((task for task in plan.tasks if task.task_id == task_id), None)
    if task is None:
        raise UnknownName(f"no task {task_id}")
    return task


def _sorters(plan: Plan) -> list[str]:
    return [node.node_id for node in plan.nodes if node.role == "sorter"]


def _ids(children: Iterable[Child]) -> list[int]:
    return [child.task_id for child in children]
