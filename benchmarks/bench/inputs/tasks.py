"""Written change files as a sorter's tasks see them: what dispatchers would tell, by the dispatcher's own router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bench.inputs.changes import TENANT
from tistream.model.span import WHOLE, KeySpan
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.storage.object_store import ObjectStore
from tistream.wire.file_batch import WATERMARKS, FileRef, RowGroupRef
from tistream_dispatcher.delivery.router import Router, TaskSpan
from tistream_sorter.state.task_state import TaskIdentity
from tistream_sorter.task.tick import TaskFile

TASK_ID = 1


def identity(snapshot_ts: int, epoch: int = 1) -> TaskIdentity:
    """One task that has the whole tenant."""
    return TaskIdentity(TENANT, TASK_ID, WHOLE, snapshot_ts, epoch)


def task_files(objects: ObjectStore, keys: Sequence[str], first_ts: dict[int, int]) -> list[TaskFile]:
    """Files in chain order, for the one task. `first_ts`, by store, is where its chain began; it is kept up to date."""
    return routed(objects, keys, first_ts, {TASK_ID: WHOLE})[TASK_ID]


def routed(
    objects: ObjectStore, keys: Sequence[str], first_ts: dict[int, int], spans: Mapping[int, KeySpan]
) -> dict[int, list[TaskFile]]:
    """The same for several tasks, by task id."""
    router = Router([TaskSpan(task_id, span) for task_id, span in spans.items()])
    out: dict[int, list[TaskFile]] = {task_id: [] for task_id in spans}
    for key in keys:
        opened = open_change_file(objects, key)
        rows = router.watermarks(read_watermarks(objects, opened))
        numbers = pa.array([0] * rows.num_rows, pa.int32())
        watermarks = rows.append_column("file", numbers).select(WATERMARKS.names).cast(WATERMARKS)
        groups = tuple(
            RowGroupRef(g.index, g.offset, g.length, g.rows, g.crc32, g.key_min, g.key_max, g.unpacked)
            for g in opened.change_groups
        )
        ref = FileRef(
            cluster_id=TENANT.cluster_id,
            tenant_id=TENANT.tenant_id,
            store_id=opened.store_id,
            ts=opened.ts,
            prev_ts=opened.prev_ts,
            chain_ts=first_ts.setdefault(opened.store_id, opened.ts),
            key=key,
            size=opened.size,
            footer_start=opened.footer_start,
            arrived_ms=0,
            groups=groups,
            row_groups=router.row_groups(opened.change_groups),
        )
        for task_id, files in out.items():
            files.append(TaskFile(ref, watermarks.filter(pc.equal(watermarks["task_id"], task_id))))
    return out
