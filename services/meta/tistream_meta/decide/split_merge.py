"""Decides which tasks are split and merged, and the next step of each split or merge, from the reports of the sorters.
Pure.

* Split: a task with a high load is ordered to seal itself in favour of two children, cut at a key that halves the load.
* Merge: two neighbours with a low load are ordered to stop at one flushed_ts, `stop_at`. Once both have committed that
  order and have reached the stop, they are ordered to seal themselves in favour of one child.

The seal in a task's manifests is the truth, not the order. A reported seal is accepted from any sorter, and the
children that it names replace their parents once the sealed parents cover the same keys. In all functions `reported`
has the last report about each task, by task id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import from_physical_ms
from tistream_meta.decide.balance import UNEVEN
from tistream_meta.decide.model import Child, Seal, Task

_LOGICAL = from_physical_ms(1) - 1  # bits of a ts
# How far ahead of their progress tasks are stopped, because an order takes a moment to arrive.
MARGIN_TS = from_physical_ms(3_000)


@dataclass(frozen=True, slots=True)
class SorterReport:
    """The last report of a task's sorter about the task. `held`: the sorter has the task, and has not sealed it.
    `load`: bytes per second. `split_key`: empty if not known. `stop_at`: the stop for a merge that the task's manifests
    have; None if they have none. `sealed`: the children that the task's seal names; empty while it is not sealed.
    `settled_ms`: for how long the sorter has had the task under this epoch. `still_ms`: for how much of that time, up
    to now, the task's progress has not changed. Both count from the first report that this owner got from the sorter's
    present start."""

    held: bool = False
    load: float = 0.0
    split_key: bytes = b""
    progress_ts: int = 0
    stop_at: int | None = None
    sealed: tuple[Child, ...] = ()
    settled_ms: int = 0
    still_ms: int = 0


NO_REPORT = SorterReport()


@dataclass(frozen=True, slots=True)
class Rules:
    """When tasks are split and merged.

    hot: bytes per second below which no task is split. cold: sum of the loads of two neighbours, in bytes per second,
    up to which they are merged. uneven: a task is split only if its load exceeds this multiple of the mean load of a
    sorter. settle_ms: how long a task must have worked before its load is used. under_way_max: number of orders at a
    time. patience_ms: how long the tasks of a merge may take to reach their stop, and how long an order counts as in
    progress. still_ms: tasks whose progress has not changed for this long are not merged: they would not reach a stop,
    and nothing should be written for them. Neighbours whose progress differs by this much are not merged either.
    pause_ms: after a withdrawn merge, the time until the next merge of the same tasks. tasks_max, tasks_min: per
    tenant.
    """

    hot: float = 4 << 20
    cold: float = 256 << 10
    uneven: float = UNEVEN
    settle_ms: int = 60_000
    under_way_max: int = 4
    patience_ms: int = 60_000
    still_ms: int = 10_000
    pause_ms: int = 600_000
    tasks_max: int = 4_096
    tasks_min: int = 1


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """The new order (to split or merge) for these tasks. `seal` None withdraws their order."""

    task_ids: tuple[int, ...]
    seal: Seal | None
    why: str


@dataclass(frozen=True, slots=True)
class Succession:
    """The replacement of sealed `parents` by their `children` in the route table."""

    tenant: TenantKey
    parents: tuple[int, ...]
    children: tuple[Child, ...]


@dataclass(frozen=True, slots=True)
class SealProposal:
    """A split or a merge that must be ordered. A split has one task and two `spans`, those of the children; a merge has
    two neighbours and one span. `stop_at` is the flushed_ts at which the neighbours stop before the merge; None for a
    split. It has no ids of children, because these come from the database."""

    task_ids: tuple[int, ...]
    spans: tuple[KeySpan, ...]
    stop_at: int | None
    why: str


def successions(tasks: Iterable[Task], reported: Mapping[int, SorterReport]) -> list[Succession]:
    """Find the sealed tasks that can be replaced by their children now: sets of parents that together cover the same
    keys as their children. Returns each set with its children."""
    ended: dict[tuple[TenantKey, tuple[Child, ...]], list[Task]] = defaultdict(list)
    for task in tasks:
        children = reported.get(task.task_id, NO_REPORT).sealed
        if children:
            ended[task.tenant, children].append(task)
    out = []
    for (tenant, children), parents in ended.items():
        if _around([child.span for child in children]) == _around([task.span for task in parents]):
            ids = sorted(task.task_id for task in parents)
            out.append(Succession(tenant, tuple(ids), children))
    return out


def forgotten(tasks: Sequence[Task], reported: Mapping[int, SorterReport]) -> list[TaskOrder]:
    """Find merges whose orders the database has lost, for example because it was restored: one of the tasks is sealed
    for a merge, and its neighbour has no order. Returns the orders again, as final ones. If a neighbour no longer stops
    at the ts of the merge, it cannot be sealed there, and nothing is ordered."""
    out = []
    seen: set[tuple[TenantKey, int]] = set()
    for task in tasks:
        children = reported.get(task.task_id, NO_REPORT).sealed
        if len(children) != 1 or children[0].span == task.span or (task.tenant, children[0].task_id) in seen:
            continue
        seen.add((task.tenant, children[0].task_id))
        parents = [one for one in tasks if one.tenant == task.tenant and one.span.overlaps(children[0].span)]
        waiting = [reported.get(one.task_id, NO_REPORT) for one in parents]
        stops = {one.stop_at for one in waiting if one.sealed != children}
        known = all(one.seal is not None and one.seal.final and one.seal.children == children for one in parents)
        if known or len(stops) != 1 or None in stops or _around([one.span for one in parents]) != children[0].span:
            continue
        seal = Seal(children, stops.pop(), final=True)
        out.append(
            TaskOrder(tuple(one.task_id for one in parents), seal, "one of them is sealed, and the order forgotten")
        )
    return out


def under_way(
    tasks: Iterable[Task], reported: Mapping[int, SorterReport], age_ms: Mapping[int, int], rules: Rules
) -> list[TaskOrder]:
    """Find the next step of each merge in progress: to stop at a later ts, to seal (which cannot be withdrawn), or to
    withdraw the merge. `age_ms`: by task id, for how many ms this owner has known the task's order."""
    by_child: dict[tuple[TenantKey, int], list[Task]] = defaultdict(list)
    for task in tasks:
        if task.seal is not None and task.seal.merges:
            by_child[task.tenant, task.seal.children[0].task_id].append(task)
    out = []
    for parents in by_child.values():
        ids, seal = tuple(task.task_id for task in parents), parents[0].seal
        assert seal is not None
        reports = [reported.get(task.task_id, NO_REPORT) for task in parents]
        if seal.final:
            continue  # one of them may be sealed, so the merge cannot be withdrawn
        if any(one.sealed == seal.children for one in reports):  # a restored database has forgotten the permission
            out.append(TaskOrder(ids, replace(seal, final=True), "one of them is sealed"))
        elif _around([task.span for task in parents]) != seal.children[0].span:
            out.append(TaskOrder(ids, None, "its neighbour has gone"))
        elif all(one.stop_at == seal.stop_at and one.progress_ts >= (seal.stop_at or 0) for one in reports):
            out.append(TaskOrder(ids, replace(seal, final=True), "all rest at one ts"))
        elif max(age_ms.get(task.task_id, 0) for task in parents) > rules.patience_ms:
            out.append(TaskOrder(ids, None, "they did not come to rest"))
        elif any(one.stop_at != seal.stop_at and one.progress_ts > (seal.stop_at or 0) for one in reports):
            stop_at = unique_stop_at(_stop(reports), seal.children[0])
            out.append(TaskOrder(ids, replace(seal, stop_at=stop_at), "one has gone past the stop"))
    return out


def proposals(
    tasks: Sequence[Task],
    reported: Mapping[int, SorterReport],
    sorters: int,
    rules: Rules = DEFAULT_RULES,
    age_ms: Mapping[int, int] = MappingProxyType({}),
    withdrawn: Container[int] = (),
) -> list[SealProposal]:
    """Find tasks to split and to merge now.

    Args:
        tasks: of one or more tenants, those of a tenant in key order.
        sorters: number of sorters that are alive.
        age_ms: how long this owner has known a task's order, so that an order that hangs does not block others for
            ever.
        withdrawn: the tasks whose merge was withdrawn less than `pause_ms` ago.
    """
    under_way = {
        task.seal.children[0].task_id
        for task in tasks
        if task.seal is not None and age_ms.get(task.task_id, 0) <= rules.patience_ms
    }
    budget = rules.under_way_max - len(under_way)
    counts: dict[TenantKey, int] = defaultdict(int)
    for task in tasks:
        counts[task.tenant] += 1
    mean = sum(one.load for one in reported.values()) / max(1, sorters)
    out: list[SealProposal] = []
    for task in sorted(tasks, key=lambda task: -reported.get(task.task_id, NO_REPORT).load):
        if len(out) >= budget:
            return out
        one = reported.get(task.task_id, NO_REPORT)
        if one.load < rules.hot:
            break
        if sorters < 2 or one.load <= rules.uneven * mean:
            continue  # moving other tasks to other sorters is enough
        spans = halves(task.span, one.split_key)
        if spans is not None and _ready(task, one, rules) and counts[task.tenant] < rules.tasks_max:
            out.append(SealProposal((task.task_id,), spans, None, f"{one.load / 1e6:.1f} MB/s"))
    taken: set[int] = set()
    for left, right in pairwise(tasks):
        if len(out) >= budget:
            break
        ours, theirs = (reported.get(task.task_id, NO_REPORT) for task in (left, right))
        if (
            left.tenant == right.tenant
            and counts[left.tenant] > rules.tasks_min
            and not taken & {left.task_id, right.task_id}
            and _ready(left, ours, rules)
            and _ready(right, theirs, rules)
            and ours.load + theirs.load <= rules.cold
            and max(ours.still_ms, theirs.still_ms) < rules.still_ms
            and abs(ours.progress_ts - theirs.progress_ts) < from_physical_ms(rules.still_ms)
            and left.task_id not in withdrawn
            and right.task_id not in withdrawn
        ):
            taken |= {left.task_id, right.task_id}
            counts[left.tenant] -= 1
            out.append(merge(left, right, ours, theirs, "both are cold"))
    return out


def merge(left: Task, right: Task, ours: SorterReport, theirs: SorterReport, why: str) -> SealProposal:
    """Make the SealProposal to merge two neighbours. `ours` and `theirs` are the last reports about them. They stop at
    a ts above the progress of both."""
    span = _around([left.span, right.span])
    assert span is not None
    return SealProposal((left.task_id, right.task_id), (span,), _stop([ours, theirs]), why)


def halves(span: KeySpan, key: bytes) -> tuple[KeySpan, KeySpan] | None:
    """Cut a span at a key. Returns both parts; None if the key does not lie strictly inside."""
    if key <= span.start or key not in span:
        return None
    return KeySpan(span.start, key), KeySpan(key, span.end)


def _ready(task: Task, reported: SorterReport, rules: Rules) -> bool:
    settled = reported.held and reported.settled_ms >= rules.settle_ms
    return settled and task.seal is None and task.next_node is None and not reported.sealed


def unique_stop_at(stop_at: int, child: Child) -> int:
    """Make a stop_at that no other order has: its logical bits are those of the child's task id. The stop_at of a
    withdrawn order must not be used again, because one of two holders may not have received the withdrawal yet
    (adr/0008)."""
    return stop_at & ~_LOGICAL | child.task_id & _LOGICAL


def _stop(reported: Iterable[SorterReport]) -> int:
    return max(one.progress_ts for one in reported) + MARGIN_TS


def _around(spans: Iterable[KeySpan]) -> KeySpan | None:
    """The union of these spans as one span; None if they overlap or there is a gap between them."""
    ordered = sorted(spans, key=lambda span: span.start)
    if any(left.end != right.start or not left.end for left, right in pairwise(ordered)):
        return None
    return KeySpan(ordered[0].start, ordered[-1].end) if ordered else None
