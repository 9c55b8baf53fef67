"""Records a tick of a task as trace spans: its files, and the time of each stage (docs/operations/traces.md).

A tick belongs to the trace of its first sampled file. Its other sampled files are linked to it, so that the trace of
each file shows the tick that it waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tistream import trace
from tistream.format.manifest import Manifest
from tistream.trace import Context, Mark, Span
from tistream_sorter.jobs.shard import ShardResult
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.tick import TaskFile, TickPlan

LINKS_MAX = 32
FILES_MAX = 64  # files for which a span from arrival to manifest is recorded
SHARDS_MAX = 64


class TickTrace:
    """The trace of a tick, from its plan to the commit of its manifest. Another attempt at a tick has a trace of its
    own."""

    def __init__(self, span: Span, task_id: int, files: Sequence[tuple[TaskFile, Mark]]) -> None:
        self._span, self._task_id, self._files = span, task_id, files

    @classmethod
    def begun(cls, state: TaskState, due: TickPlan | Manifest, began_ns: int) -> TickTrace:
        """Begin the trace of a tick, or of a manifest without rows. `began_ns`: when the work began, in Unix ns."""
        files = [file for _, file in due.files] if isinstance(due, TickPlan) else []
        marked = [(file, file.mark) for file in files if file.mark is not None]
        contexts = list(dict.fromkeys(mark.context for _, mark in marked))
        kept = [context for context in contexts if context.sampled]
        parent = next(iter([*kept, *contexts]), None)
        said: dict[str, str | int] = {
            "tistream.tenant": str(state.identity.tenant),
            "tistream.task": state.identity.task_id,
            "tistream.files": len(files),
        }
        if isinstance(due, TickPlan):
            said |= {"tistream.shards": len(due.shards), "tistream.work_bytes": due.work}
        span = trace.begin(
            "tick" if isinstance(due, TickPlan) else "progress",
            parent=parent,
            links=[context for context in kept if context != parent][:LINKS_MAX],
            began_ns=began_ns,
            attributes=said,
        )
        trace.record("plan", began_ns, trace.now_ns(), span.context)
        kept_files = [(file, mark) for file, mark in marked if mark.context.sampled]
        return cls(span, state.identity.task_id, kept_files[:FILES_MAX])

    @property
    def span(self) -> Span:
        """The trace span of the tick. `trace.inside(span)` makes it the current span during the commit; `committed` or
        `given_up` ends it."""
        return self._span

    def job(self, began_ns: int, tasks: int, results: Sequence[ShardResult], failed: str | None = None) -> None:
        """Record a Spark job that has ended, and the shards of this tick in it. `began_ns`: in Unix ns. tasks: how
        many of the sorter's tasks share the job."""
        job = trace.record(
            "spark job",
            began_ns,
            trace.now_ns(),
            self._span.context,
            attributes={"tistream.tasks": tasks},
            failed=failed,
        )
        for result in results[:SHARDS_MAX]:
            _shard(job, result)

    def committed(self, number: int) -> None:
        """End the trace of a tick whose files are in the manifest with this number."""
        ended_ns = trace.now_ns()
        self._span.set({"tistream.manifest": number})
        here = self._span.context
        for file, mark in self._files:
            trace.record(
                "file in manifest",
                mark.at_ns,
                ended_ns,
                mark.context,
                links=[] if here is None else [here],
                attributes={
                    "tistream.task": self._task_id,
                    "tistream.store": str(file.ref.store_id),
                    "tistream.file_ts": str(file.ref.ts),
                    "tistream.manifest": number,
                },
            )
        self._span.end()

    def given_up(self, kind: str) -> None:
        """End the trace of a tick that committed nothing. `kind`: the step that failed, such as `commit`. The tick's
        files stay in the inbox."""
        self._span.fail(kind)
        self._span.end()


def _shard(job: Context | None, result: ShardResult) -> None:
    if not result.stages:
        return
    wrong = result.bad_files or result.broken or result.failed
    shard = trace.record(
        "shard",
        result.stages[0][1],
        result.stages[-1][2],
        job,
        attributes={
            "tistream.shard": result.number,
            "tistream.read_bytes": result.read_bytes,
            "tistream.requests": sum(done.requests for done in result.traffic.values()),
        },
        failed="shard" if wrong else None,
    )
    for name, began_ns, ended_ns in result.stages:
        trace.record(name, began_ns, ended_ns, shard)
