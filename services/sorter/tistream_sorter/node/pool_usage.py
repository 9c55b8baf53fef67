"""Finds the bytes that tenants have pushed and store, for the usage reports to the meta servers. The figures are those
of the manifests of this process's tasks (docs/adr/0014)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tistream.format.run import runs_of
from tistream.storage import layout
from tistream.wire.usage import HOUR_MS, Intake, StoredUsage, hour_of
from tistream_sorter.state.intake import HOURS_MAX, counts_intake
from tistream_sorter.state.task_state import TaskState

Hour = tuple[str, str, int]


class PoolUsage:
    """Finds the usage that the meta server has not acknowledged yet. `tasks` returns the states of the tasks. Only one
    thread may call it."""

    def __init__(self, tasks: Callable[[], Iterable[TaskState]]) -> None:
        self._tasks = tasks
        self._reported: dict[Hour, int] = {}  # bytes of an hour, as last reported
        self._stored: dict[int, tuple[int, int]] = {}  # task -> the hour and the manifest last reported

    def due(self, now_ms: int) -> tuple[list[Intake], list[StoredUsage]]:
        """The usage that has not been reported: bytes ingested, by hour; and stored bytes, for each hour since the last
        report. An hour without a manifest has the stored bytes of the hour before, because any change makes a
        manifest."""
        intake: list[Intake] = []
        stored: list[StoredUsage] = []
        states = list(self._tasks())
        held = {state.identity.task_id for state in states}
        self._stored = {task_id: reported for task_id, reported in self._stored.items() if task_id in held}
        restated = {_hour(one) for state in states for one in _intake(state)}
        self._reported = {hour: size for hour, size in self._reported.items() if hour in restated}
        for state in states:
            intake += [one for one in _intake(state) if self._reported.get(_hour(one), -1) < one.bytes_in]
            stored += self._hours(state, hour_of(now_ms))
        return intake, stored

    def acknowledged(self, intake: Sequence[Intake], stored: Sequence[StoredUsage]) -> None:
        """Record that a meta server has received this usage, which `due` returned. It is not due again."""
        for one in intake:
            self._reported[_hour(one)] = one.bytes_in
        for task in stored:
            self._stored[task.task_id] = (task.hour_ms, task.manifest)

    def _hours(self, state: TaskState, hour_ms: int) -> list[StoredUsage]:
        if not state.written_ms:
            return []  # no manifest yet
        identity = state.identity
        last_ms, manifest = self._stored.get(identity.task_id, (hour_of(state.written_ms) - HOUR_MS, 0))
        since_ms = max(last_ms + HOUR_MS, hour_ms - HOURS_MAX * HOUR_MS)
        hours = list(range(since_ms, hour_ms + HOUR_MS, HOUR_MS))
        if not hours and manifest != state.number:
            hours = [hour_ms]
        sizes = stored_bytes(state) if hours else {}
        return [
            StoredUsage(
                cluster_id=identity.tenant.cluster_id,
                tenant_id=identity.tenant.tenant_id,
                hour_ms=hour,
                task_id=identity.task_id,
                manifest=state.number,
                bytes_of=sizes,
            )
            for hour in hours
        ]


def _intake(state: TaskState) -> list[Intake]:
    if not counts_intake(state.identity):
        return []
    tenant = state.identity.tenant
    return [
        Intake(cluster_id=tenant.cluster_id, tenant_id=tenant.tenant_id, hour_ms=hour_ms, bytes_in=size)
        for hour_ms, size in state.intake.hours.items()
    ]


def stored_bytes(state: TaskState) -> dict[int, int]:
    """Bytes of the objects that a state names, by the id of the task that wrote them. Each object counts once."""
    sizes = {segment.key: segment.size for segment in state.live_segments}
    sizes |= {part.key: part.size for part in state.pending}
    sizes |= {run.key: run.size for run in runs_of(state.index)}
    found: Counter[int] = Counter()
    for key, size in sizes.items():
        found[layout.task_of(key) or 0] += size
    return dict(found)


def _hour(one: Intake) -> Hour:
    return one.cluster_id, one.tenant_id, one.hour_ms
