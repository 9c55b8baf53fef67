"""The sorter's answers: its tasks, their progress, and the reasons why they make none. Batches of files are in
file_batch.py."""

from pydantic import BaseModel, ConfigDict, Field


class Wire(BaseModel):
    """Base of every wire model: immutable. Unknown members are ignored, so that peers may be newer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Chain(Wire):
    """The position in one chain of a store's files. See tistream.format.manifest.ChainPosition, whose wire form this
    is."""

    first_ts: int
    at_ts: int


class Hold(Wire):
    """The reason why a stage, such as a store's dispatcher or a task, makes no progress (design.md 6, `held_by`)."""

    stage: str = Field(pattern="^(push|damaged|dispatch|sort|schema|node)$")
    store_id: str | None = None
    region_id: str | None = None
    object: str | None = None
    reason: str


class TaskStatus(Wire):
    """One task, as its sorter knows it. `manifest` and `checkpoint` are the numbers of its newest manifest and
    checkpoint manifest. `stopped`: the error that has stopped the task.

    `received` are the positions up to which files were accepted into memory, `durable` those in the last manifest. A
    dispatcher that lost its memory starts from `received`; source files after `durable` are still needed.
    `progress_ts`, at or above flushed_ts: every row at or below it is in a manifest, because none is pending and none
    will come. `pointed` is, by store, the ts of the oldest file that the last manifest points into. `pointed` is None
    if the task was split or merged from others and has no manifest of its own yet, or if the sorter's version does not
    report it.
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
    """The answer of `GET /v1/tasks[?cluster_id=&tenant_id=]`."""

    node_id: str
    tasks: list[TaskStatus]


class TaskProgress(Wire):
    """Progress of one task: no row at or below `progress_ts` is missing from its manifests 1 … `manifest`, and none
    will come. This stays true if the task moves, or is split or merged."""

    cluster_id: str
    tenant_id: str
    task_id: int
    task_epoch: int
    manifest: int
    flushed_ts: int
    progress_ts: int


class ProgressPage(Wire):
    """The answer of `GET /v1/progress?boot=&after=`: the tasks whose progress has changed since an earlier answer,
    which `boot` (the sorter's process) and `after` (the `version` of that answer) identify; all tasks, if another
    process gave that answer."""

    boot: str
    version: int
    tasks: list[TaskProgress]


class FilesReceipt(Wire):
    """The answer of `POST /v1/files`: for each task, the positions up to which its files were received.
    `unknown_tasks`: tasks that this sorter does not hold.

    A file whose `ts` is at or below its chain's `at_ts` was known already, which is no error. A file that does not
    follow its chain is not accepted; the dispatcher sends again from `received`.
    """

    received: dict[int, dict[int, list[Chain]]]
    unknown_tasks: list[int] = []


class SliceStatus(Wire):
    """One slice of a task's span: keys of one region whose changes have arrived up to the same entry, `index`, of the
    region's log (design.md 3). `waits_for` says what the slice's next watermark waits for; null while the slice is up
    to date."""

    start_key: str
    end_key: str
    region_id: str | None
    region_version: str
    index: str
    resolved_ts: str
    waits_for: str | None = None


class StoreNeed(Wire):
    """The answer of `GET /v1/tasks/{task_id}/stores/{store_id}`: which data of a store the task still needs. `durable`
    and `received` are the positions in the store's chains, in the newest manifest and in memory. `pointed` is the
    oldest file that pending rows point into, and `known` whether that is known. `resting` is the first slice whose
    newest watermark came from this store. `waits`: what the store's first waiting watermark row waits for."""

    received: list[Chain]
    durable: list[Chain]
    known: bool
    pointed: int | None = None
    resting: SliceStatus | None = None
    waits: str | None = None


class Coverage(Wire):
    """The answer of `GET /v1/tasks/{task_id}/coverage?start_key=&end_key=` (hex, [start, end), empty = unbounded):
    which keys are complete up to which ts."""

    slices: list[SliceStatus]
