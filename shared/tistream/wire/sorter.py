"""The sorter's HTTP contract besides file batches: what it holds, and what holds it."""

from pydantic import BaseModel, ConfigDict, Field


class Wire(BaseModel):
    """Base of every wire model: immutable. Unknown members are ignored, so that peers may be newer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Chain(Wire):
    """Mirror of tistream.format.manifest.ChainPosition."""

    first_ts: int
    at_ts: int


class Hold(Wire):
    """Why something stands still (design.md 5, `held_by`)."""

    stage: str = Field(pattern="^(push|damaged|dispatch|sort|schema|node)$")
    store_id: str | None = None
    region_id: str | None = None
    object: str | None = None
    reason: str


class TaskStatus(Wire):
    """One task as its sorter sees it.

    `received` is what was accepted into memory, `durable` what the last manifest carries: a dispatcher that lost
    its memory starts from `received`, and source files are needed beyond `durable`. `progress_ts` >= flushed_ts is
    a resolved ts that needs no object: nothing at or below it is pending, and nothing will come. `pointed` is, by
    store, the ts of the oldest file that the last manifest points into; None: the task carries on others and has no
    manifest of its own yet, or the sorter is of a version that does not say.
    """

    cluster_id: str
    tenant_id: str
    task_id: int
    task_epoch: int
    start_key: str
    end_key: str
    manifest: int
    checkpoint: int
    flushed_ts: int
    progress_ts: int
    received: dict[int, list[Chain]]
    durable: dict[int, list[Chain]]
    pending_rows: int
    pending_bytes: int
    counters: dict[str, int]
    holds: list[Hold] = []
    stopped: str | None = None
    retained_ts: int = 0
    pointed: dict[int, int] | None = None


class TaskList(Wire):
    """Answer of `GET /v1/tasks[?cluster_id=&tenant_id=]`."""

    node_id: str
    tasks: list[TaskStatus]


class TaskProgress(Wire):
    """How far one task is: no row at or below `progress_ts` is missing from its manifests 1 … `manifest`, and none will
    come. It stays true, whatever becomes of the task."""

    cluster_id: str
    tenant_id: str
    task_id: int
    task_epoch: int
    manifest: int
    flushed_ts: int
    progress_ts: int


class ProgressPage(Wire):
    """Answer of `GET /v1/progress?boot=&after=`: the tasks that changed after what an earlier answer's `boot` and
    `version` named; all of them, where that was another process's."""

    boot: str
    version: int
    tasks: list[TaskProgress]


class FilesReceipt(Wire):
    """Answer of `POST /v1/files`: per task the chains received, or that the task is not served here.

    A file whose `ts` lies at or below its chain's `at_ts` was known already, which is no error; one that does not
    follow its chain is not taken (the dispatcher sends again from `received`).
    """

    received: dict[int, dict[int, list[Chain]]]
    unknown_tasks: list[int] = []


class SliceStatus(Wire):
    """One slice of a task's span. `waits_for` is null while it is up to date."""

    start_key: str
    end_key: str
    region_id: str | None
    region_version: str
    index: str
    resolved_ts: str
    waits_for: str | None = None


class StoreNeed(Wire):
    """Answer of `GET /v1/tasks/{task_id}/stores/{store_id}`: what the task still needs of a store. `durable` and
    `received` are its chains, in the newest manifest and beyond; `pointed` the oldest file that pending rows point
    into, `known` whether that is known; `resting` the first slice whose log the store was the last to bring, `waits`
    what the first row of the store's own waits for."""

    received: list[Chain]
    durable: list[Chain]
    known: bool
    pointed: int | None = None
    resting: SliceStatus | None = None
    waits: str | None = None


class Coverage(Wire):
    """Answer of `GET /v1/tasks/{task_id}/coverage?start_key=&end_key=` (hex, [start, end), empty = unbounded)."""

    slices: list[SliceStatus]
