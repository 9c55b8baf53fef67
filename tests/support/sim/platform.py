"""The whole platform in one interpreter: the services' real apps, each process with its own memory, sharing only
the network, the object store and the meta database. Only Spark is left out: shards run in fibers of an executor."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from sqlalchemy import event

from support.sim.asgi import drive
from support.sim.audit import ObservedStore
from support.sim.network import Network, SimTransport
from support.sim.object_store import SimObjectStore, StoreFaults
from support.sim.scheduler import Killed, Process, Scheduler
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.client import HttpClient
from tistream_api.app import build_app as build_api
from tistream_api.settings import ApiSettings
from tistream_dispatcher.app import build_app as build_dispatcher
from tistream_dispatcher.settings import CollectSettings as SourceSettings
from tistream_dispatcher.settings import DispatcherSettings
from tistream_ingest.app import ProcessEnvironment as IngestOutside
from tistream_ingest.app import build_app as build_ingest
from tistream_ingest.backfill.chunk_job import BackupWork, write_backup_chunks
from tistream_ingest.jobs.chunk_put import ChunksWritten
from tistream_ingest.jobs.local import LocalRunner
from tistream_ingest.jobs.work import ReleaseJob, ReleaseShard, Surveyed, WorkFailure, WrittenFile
from tistream_ingest.plan.cuts import FileLimits
from tistream_ingest.settings import IngestSettings
from tistream_meta.app import build_app as build_meta
from tistream_meta.database.engine import open_engine
from tistream_meta.database.repository import Repository
from tistream_meta.feeds.shard_loads import LoadRules
from tistream_meta.feeds.worker_board import WorkerBoard
from tistream_meta.settings import MetaSettings
from tistream_schema.app import build_app as build_schema
from tistream_schema.settings import SchemaSettings
from tistream_sorter.app import ProcessEnvironment
from tistream_sorter.app import build_app as build_sorter
from tistream_sorter.jobs.bundles import bundles
from tistream_sorter.jobs.compact import rewrite_guarded
from tistream_sorter.jobs.index.base_runs import base_guarded
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.jobs.index.index_merge import merge_guarded
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardResult
from tistream_sorter.jobs.shard_io import process_guarded
from tistream_sorter.settings import CollectSettings, CompactSettings, IndexSettings, SorterSettings, TickSettings

T = TypeVar("T")

PATIENCE_S = 2.0  # for every answer; longer ones of production would let most of a seed's time pass in waiting


@dataclass
class Faults:
    """The probabilities of faults at any point, besides those of the network and the store."""

    store: StoreFaults = field(default_factory=StoreFaults)
    killed: float = 0.0  # a process dies on the way to the store, a peer or the database, or on the way back
    database_silent: float = 0.0  # a transaction whose answer never comes: done or not done
    job_lost: float = 0.0  # a Spark job that dies as a whole
    jvm_dead: float = 0.0  # the driver's JVM, noticed before a tick


class ProcessClock:
    """The clock of a process: the virtual time with an error in its wall time."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler, self._process = scheduler, process

    def now_ms(self) -> int:
        return self._scheduler.now_ms + self._process.skew_ms

    def monotonic_ms(self) -> int:
        return self._scheduler.now_ms


class SimRepository:
    """The meta database from one process: every call is a transaction over a network."""

    def __init__(self, inner: Any, scheduler: Scheduler, faults: Faults, may_die: Callable[[], None]) -> None:
        self._inner, self._scheduler, self._faults, self._may_die = inner, scheduler, faults, may_die

    def close(self) -> None:
        self._inner.close()

    @property
    def owner_rev(self) -> int:
        return self._inner.owner_rev

    @property
    def prepared(self) -> bool:
        return self._inner.prepared

    @property
    def write_count(self) -> int:
        return self._inner.write_count

    @property
    def usage(self) -> SimRepository:
        """What is kept there of usage: its calls are transactions too."""
        return SimRepository(self._inner.usage, self._scheduler, self._faults, self._may_die)

    @property
    def ends(self) -> SimRepository:
        """How tenants and stores end, likewise."""
        return SimRepository(self._inner.ends, self._scheduler, self._faults, self._may_die)

    @property
    def sources(self) -> SimRepository:
        """The sources of tenants, likewise."""
        return SimRepository(self._inner.sources, self._scheduler, self._faults, self._may_die)

    @property
    def audit(self) -> SimRepository:
        """The audit log, likewise."""
        return SimRepository(self._inner.audit, self._scheduler, self._faults, self._may_die)

    def part(self, make: Any) -> SimRepository:
        """A further part of the repository, likewise: that it is made is no call over the network."""
        return SimRepository(self._inner.part(make), self._scheduler, self._faults, self._may_die)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._inner, name)

        def over_the_network(*args: Any, **kwargs: Any) -> Any:
            rng = self._scheduler.rng
            self._scheduler.sleep(rng.randrange(200, 2_000))
            self._may_die()
            silent = rng.random() < self._faults.database_silent
            if silent and rng.random() < 0.5:
                raise Unavailable("the database does not answer")
            found = call(*args, **kwargs)
            self._may_die()
            self._scheduler.sleep(rng.randrange(200, 2_000))
            if silent:
                raise Unavailable("the database does not answer")
            return found

        return over_the_network


class SimRunner:
    """In Spark's place: the shards of a job, two at a time, in an executor that outlives the driver's death."""

    slots = 2

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Process,
        objects: ObjectStore,
        faults: Faults,
        large: Callable[[], None],
    ) -> None:
        self._scheduler, self._executor, self._objects, self._faults = scheduler, executor, objects, faults
        self._large = large

    @property
    def alive(self) -> bool:
        return self._scheduler.rng.random() >= self._faults.jvm_dead

    def warm(self) -> None:
        self._scheduler.sleep(self._scheduler.rng.randrange(200_000))

    def close(self) -> None:
        return None

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        rng = self._scheduler.rng
        if beside:
            self._large()
        self._scheduler.sleep(rng.randrange(5_000, 40_000))
        lost = rng.random() < self._faults.job_lost
        results: list[ShardResult] = []
        fibers = [
            self._scheduler.start(self._executor, "slot", lambda bundle=bundle: results.extend(self._work(bundle)))
            for bundle in bundles(shards, len(shards) if beside else self.slots)
        ]
        if lost:
            self._scheduler.sleep(rng.randrange(60_000))
            raise RuntimeError("the executor was lost")
        for fiber in fibers:
            fiber.join()
        order = {(shard.task_id, shard.number): at for at, shard in enumerate(shards)}
        return sorted(results, key=lambda result: order[result.task_id, result.number])

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        self._scheduler.sleep(self._scheduler.rng.randrange(5_000, 40_000))
        if self._scheduler.rng.random() < self._faults.job_lost:
            raise RuntimeError("the executor was lost")
        return [rewrite_guarded(self._objects, unit) for unit in units]

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]:
        self._scheduler.sleep(self._scheduler.rng.randrange(5_000, 40_000))
        if self._scheduler.rng.random() < self._faults.job_lost:
            raise RuntimeError("the executor was lost")
        return [merge_guarded(self._objects, unit) for unit in units]

    def bases(self, units: Sequence[BaseUnit]) -> list[BaseResult]:
        self._scheduler.sleep(self._scheduler.rng.randrange(5_000, 40_000))
        if self._scheduler.rng.random() < self._faults.job_lost:
            raise RuntimeError("the executor was lost")
        return [base_guarded(self._objects, unit) for unit in units]

    def _work(self, bundle: Sequence[Shard]) -> list[ShardResult]:
        return [process_guarded(self._objects, shard) for shard in bundle]


class SimIngestRunner:
    """In Spark's place for the ingest service: a job runs in a fiber of the executor, which outlives its driver."""

    slots = 2

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Process,
        open_bucket: Callable[[str], ObjectStore],
        objects: ObjectStore,
        faults: Faults,
    ) -> None:
        self._scheduler, self._executor, self._faults = scheduler, executor, faults
        self._open_bucket = open_bucket
        self._inner = LocalRunner(open_bucket, objects, slots=self.slots)

    def survey(self, log_url: str, shards: Sequence[ReleaseShard], limits: FileLimits) -> list[Surveyed]:
        return self._job(lambda: self._inner.survey(log_url, shards, limits))

    def run(self, log_url: str, job: ReleaseJob) -> list[WrittenFile | WorkFailure]:
        return self._job(lambda: self._inner.run(log_url, job))

    def each(self, tenant: TenantKey, work: Callable[[ObjectStore, Any], T], things: Sequence[Any]) -> list[T]:
        return self._job(lambda: self._inner.each(tenant, work, things))

    def write(self, backup_url: str, works: Sequence[BackupWork]) -> list[ChunksWritten]:
        backup = self._open_bucket(backup_url)
        return self._job(lambda: [write_backup_chunks(self._inner.objects, backup, work) for work in works])

    def _job(self, work: Callable[[], list[T]]) -> list[T]:
        rng = self._scheduler.rng
        self._scheduler.sleep(rng.randrange(5_000, 40_000))
        lost = rng.random() < self._faults.job_lost
        found: list[T] = []
        fiber = self._scheduler.start(self._executor, "release", lambda: found.extend(work()))
        if lost:
            self._scheduler.sleep(rng.randrange(60_000))
            raise Unavailable("the executor was lost")
        fiber.join()
        return found


@dataclass
class Member:
    """One place in the deployment, and the process that fills it now."""

    role: str
    name: str
    port: int
    process: Process | None = None
    starts: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


SHARD_WORKS = (1 << 14, 1 << 17, 128 << 20)  # the least of them gives tens of shards a tick


class SimPlatform:
    """Members by name; `start`, `kill`, `pause` and `proceed` them in the scheduler's own context."""

    def __init__(
        self,
        scheduler: Scheduler,
        directory: Path,
        *,
        ranges: int,
        sorters: int = 2,
        apis: int = 1,
        dispatchers: int = 1,
        metas: int = 1,
        ingests: int = 0,
        skew_ms: int = 0,
        retention_ms: int | None = None,
        changefeeds: int = 0,
        new_changefeed: Callable[[Member, Process, HttpClient], FastAPI] | None = None,
        shard_works: Sequence[int] = SHARD_WORKS,
        feed_loads: LoadRules | None = None,
        remembered: str | None = None,
    ) -> None:
        """With `changefeeds`, whose apps `new_changefeed` makes, there is nothing else but meta servers. A start of a
        sorter draws its `shard_work_max` from `shard_works`. `feed_loads` decide how many shards a feed has.
        `remembered`: a query of the meta database; no copy is restored that answers it in another way."""
        self.retention_ms, self._shard_works, self._feed_loads = retention_ms, shard_works, feed_loads
        self._remembered = remembered
        self._new_changefeed = new_changefeed
        self.scheduler = scheduler
        self.objects = ObservedStore(ProcessClock(scheduler, Process("object store")))
        self._buckets: dict[str, MemoryObjectStore] = {}  # of the upstream, by URL: log backups, full backups
        self.faults = Faults()
        self.network = Network(scheduler, may_die=self.may_die)
        self.ranges = ranges
        self.large_jobs = 0
        self._directory, self._skew_ms = directory, skew_ms
        self._nonces = random.Random(scheduler.rng.getrandbits(64))
        self._executor = Process("executors")
        # Those that there may be several of come last: the names of the others are the same in every world.
        roles = ["meta", "schema", "dispatcher", *["sorter"] * sorters, *["api"] * apis]
        roles += [*["dispatcher"] * (dispatchers - 1), *["meta"] * (metas - 1), *["ingest"] * ingests]
        if changefeeds:
            roles = [*["meta"] * metas, *["changefeed"] * changefeeds]
        self.members = {
            f"{role}-{number}": Member(role, f"{role}-{number}", 8_000 + number) for number, role in enumerate(roles, 1)
        }
        self.outside = Process("outside")
        self.superseded: list[Process] = []  # those that have ended themselves, a newer start having replaced them
        self._lifespans: list[AbstractAsyncContextManager[Any]] = []
        self._copies: list[tuple[int, Path]] = []  # of the meta database: when (virtual ms), and where

    def of(self, role: str) -> list[Member]:
        """The members of a role."""
        return [member for member in self.members.values() if member.role == role]

    # -- life and death -----------------------------------------------------------------------------------------------

    def start(self, member: Member) -> None:
        """A new process in the member's place; it begins to listen once its app runs."""
        assert member.process is None or not member.process.alive
        rng = self.scheduler.rng
        process = Process(member.name, rng.randint(-self._skew_ms, self._skew_ms))
        member.process, member.starts = process, member.starts + 1
        feeds = self._new_changefeed if member.role == "changefeed" else None

        def boot() -> None:
            self.scheduler.sleep(rng.randrange(50_000, 400_000))
            app = self._app(member, process) if feeds is None else feeds(member, process, self.client(process))
            lifespan: AbstractAsyncContextManager[Any] = app.router.lifespan_context(app)
            drive(lifespan.__aenter__())
            self._lifespans.append(lifespan)
            if member.process is not process:  # replaced while it started: its port is taken
                self._end(process)
            self.network.listening[f"127.0.0.1:{member.port}"] = (process, app)

        self.scheduler.start(process, "boot", boot)

    def end(self) -> None:
        """Everybody is dead: close what they leave, before it is collected at some moment of another world."""
        for lifespan in self._lifespans:
            with contextlib.suppress(Killed):
                drive(lifespan.__aexit__(Killed, Killed(), None))
        self._lifespans.clear()

    def kill(self, process: Process) -> None:
        """SIGKILL."""
        if process.alive:
            self.scheduler.kill(process)

    def may_die(self, process: Process) -> None:
        """In a fiber of the process: it may come no further."""
        mortal = process is not self.outside and process is not self._executor
        if mortal and self.scheduler.rng.random() < self.faults.killed:
            self.scheduler.after(0, lambda: self.kill(process))
            self.scheduler.park(None)

    def _end(self, process: Process) -> None:
        """The process ends itself. In one of its fibers."""
        self.scheduler.after(0, lambda: self.kill(process))
        self.scheduler.park(None)

    def end_superseded(self, process: Process) -> None:
        """The process ends itself, because a newer start has replaced it. In one of its fibers."""
        self.superseded.append(process)
        self._end(process)

    def client(
        self, process: Process | None = None, deadline_s: float = PATIENCE_S, headers: Mapping[str, str] | None = None
    ) -> HttpClient:
        """HTTP from a process, or from outside."""
        return HttpClient(deadline_s=deadline_s, transport=self.transport(process), headers=headers)

    @property
    def meta_urls(self) -> str:
        """As META_URL has them."""
        return ",".join(member.url for member in self.of("meta"))

    def transport(self, process: Process | None = None) -> SimTransport:
        return SimTransport(self.network, process or self.outside)

    # -- the meta database, and its backups ---------------------------------------------------------------------------

    @property
    def _database(self) -> Path:
        return self._directory / "meta.db"

    def back_up(self) -> None:
        """A copy of the meta database, as it is now, once a tenant is registered: who restores an older one has to
        register it again."""
        if not self._database.exists():
            return
        path = self._directory / f"copy-{len(self._copies)}.db"
        source, target = sqlite3.connect(self._database), sqlite3.connect(path)
        with contextlib.closing(source), contextlib.closing(target):
            source.backup(target)
            tables = {name for (name,) in target.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            registered = "tenants" in tables and target.execute("SELECT count(*) FROM tenants").fetchone()[0]
        if registered:
            self._copies.append((self.scheduler.now_ms, path))

    def forget(self, age_ms: int) -> bool:
        """The meta database is what it was so long ago; whether there is a copy that is as old. No process may live
        that has it open."""
        now_ms = self.scheduler.now_ms
        old = [path for at_ms, path in self._copies if at_ms <= now_ms - age_ms and self._remembers(path)]
        if not old:
            return False
        for suffix in ("", "-wal", "-shm"):  # the dead still have the files open: they keep what they had
            self._database.with_name(self._database.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(old[-1], self._database)
        self._without_tasks()
        return True

    def _remembers(self, copy: Path) -> bool:
        answers = []
        for path in (self._database, copy):
            with contextlib.closing(sqlite3.connect(path)) as database:
                answers.append(self._remembered and database.execute(self._remembered).fetchall())
        return answers[0] == answers[1]

    def forget_start(self) -> bool:
        """The meta database is what it was when the tenant was registered and had not started; whether it ever was."""
        if not self.forget(self.scheduler.now_ms - self._copies[0][0] if self._copies else 0):
            return False
        with contextlib.closing(sqlite3.connect(self._database)) as database, database:
            for statement in ("DELETE FROM tasks", "DELETE FROM stores", "UPDATE tenants SET snapshot_ts = NULL"):
                database.execute(statement)
        self._without_tasks()
        return True

    def _without_tasks(self) -> None:
        """A tenant without tasks begins anew, with the change files from the first on, unless the registry has a log of
        it: then none of its tasks may be lost."""
        if not self._tasks() and not any(key.startswith("schema/") for key in self.objects.names()):
            files = self.objects.audit.files
            files.before_restore.update(self.objects.audit.last)
            files.database_tasks = self._tasks

    def _tasks(self) -> set[int]:
        """The ids of all tasks that the database knows."""
        with contextlib.closing(sqlite3.connect(self._database)) as database:
            return {task_id for (task_id,) in database.execute("SELECT task_id FROM tasks")}

    # -- what a process is made of ------------------------------------------------------------------------------------

    def _app(self, member: Member, process: Process) -> FastAPI:
        clock = ProcessClock(self.scheduler, process)
        objects = SimObjectStore(
            self.objects, self.scheduler, process, self.faults.store, self.may_die, self.network.alone
        )
        common = {"port": member.port, "node_id": member.name, "meta_url": self.meta_urls}
        end = partial(self.end_superseded, process)
        new_http = lambda deadline_s=PATIENCE_S: self.client(process, min(deadline_s, PATIENCE_S))  # noqa: E731
        match member.role:
            case "meta":
                url = f"sqlite:///{self._database}"
                # Shorter than in production, so that tasks move within a seed's time.
                patience = {"lease_ms": 3_000, "suspect_ms": 1_500, "lost_ms": 4_000, "erase_quiet_ms": 1_000}
                meta = MetaSettings(**common, **patience, database_url=url, ranges_per_tenant=self.ranges)
                meta = meta.model_copy(update={"retention_ms": self.retention_ms})  # of seconds, which is no setting
                repository: Any = partial(self._repository, process)
                new_client = partial(self.client, process)
                opened = self._open_bucket(process)
                app = build_meta(meta, objects, clock, repository, new_client, self.nonce, opened)
                if self._feed_loads is not None:
                    app.state.workers = WorkerBoard(clock, self._feed_loads)
                return app
            case "schema":
                keeping = (
                    {} if self.retention_ms is None else {"quiet_segments": 4, "base_objects": 8, "grace_ms": 2_000}
                )
                return build_schema(SchemaSettings(**common, **keeping), objects, new_http(), clock, self.nonce, end)
            case "dispatcher":
                collect = SourceSettings(keep_ms=0, every_ms=1_000)  # a seed lasts for a minute
                settled = DispatcherSettings(**common, collect=collect)
                return build_dispatcher(settled, objects, clock, new_http, self.nonce, end)
            case "sorter":
                space = {
                    "collect": self._collect_settings(),
                    "compact": self._compact_settings(),
                    "index": self._index_settings(),
                }
                settings = SorterSettings(**common, tick=self._tick_settings(), **space)
                objects_there = self._objects_of(self._executor)
                runner = SimRunner(self.scheduler, self._executor, objects_there, self.faults, self._note_large_job)
                outside = ProcessEnvironment(lambda _: runner, new_http, self.nonce, lambda _: self._end(process), end)
                return build_sorter(settings, objects, clock, outside)
            case "ingest":
                quick = {
                    "poll_ms": 200,
                    "sources_ms": 300,
                    "backfills_ms": 300,
                    "file_rows": self.scheduler.rng.choice((1_000, 10_000)),
                }
                there = self._open_bucket(self._executor), self._objects_of(self._executor)
                releases = SimIngestRunner(self.scheduler, self._executor, *there, self.faults)
                around = IngestOutside(
                    releases,
                    releases,
                    open_log=self._open_bucket(process),
                    new_http=new_http,
                    new_instance=self.nonce,
                    end=end,
                )
                return build_ingest(IngestSettings(**common, **quick), objects, clock, around)
            case _:
                return build_api(ApiSettings(**common, chunk_rows=512), objects, clock, new_http, self.nonce, end)

    def _note_large_job(self) -> None:
        self.large_jobs += 1

    def _tick_settings(self) -> TickSettings:
        """What becomes of large transactions happens to small ones too, more or less, from start to start."""
        choose = self.scheduler.rng.choice
        return TickSettings(
            shard_bytes_min=1 << 16,
            checkpoint_every=4,
            shard_work_max=choose(self._shard_works),
            # What is kept is also what the slowest task has flushed: in a run of seconds it says so soon.
            idle_manifest_ms=10_000 if self.retention_ms is None else 500,
            large_work=choose([1, 100_000, 256 << 20]),
            rows_small=choose([0, 5, 16_384]),
            point_bytes_min=choose([1, 2_000, 256 << 10]),
            seal_bytes_min=choose([1, 2_000, 1 << 20]),
        )

    def _collect_settings(self) -> CollectSettings:
        """Now and then nothing is left to whoever still reads it."""
        # Where rows are kept for seconds, who follows must be able to read what a stall brings at once.
        graces = [0, 1_000, 5_000] if self.retention_ms is None else [2_000, 3_000, 5_000]
        return CollectSettings(grace_ms=self.scheduler.rng.choice(graces), every_ms=500)

    def _index_settings(self) -> IndexSettings:
        """Runs within seconds, large and small, in one piece or in shards."""
        rng = random.Random(self.scheduler.rng.randrange(1 << 30))
        return IndexSettings(
            age_ms=rng.choice([0, 500, 3_000]),
            wait_ms=rng.choice([0, 1_000, 5_000]),
            run_bytes=rng.choice([1 << 10, 16 << 20]),
            shard_bytes_max=rng.choice([1 << 14, 128 << 20]),
        )

    def _compact_settings(self) -> CompactSettings:
        choose = self.scheduler.rng.choice
        return CompactSettings(
            fan_in=choose([2, 4, 16]), small_bytes=choose([1 << 14, 8 << 20]), every_ms=choose([100, 1_000])
        )

    def _objects_of(self, process: Process, store: MemoryObjectStore | None = None) -> SimObjectStore:
        faults, alone = self.faults.store, self.network.alone
        return SimObjectStore(store or self.objects, self.scheduler, process, faults, self.may_die, alone)

    def bucket(self, url: str) -> MemoryObjectStore:
        """The upstream's bucket and prefix at this URL; it is empty at first."""
        return self._buckets.setdefault(url, MemoryObjectStore())

    def _open_bucket(self, process: Process) -> Callable[[str], SimObjectStore]:
        """Opens buckets of the upstream by their URL."""
        return lambda url: self._objects_of(process, self.bucket(url))

    def nonce(self) -> str:
        """A text that no other call returns."""
        return f"{self._nonces.getrandbits(64):016x}"

    def _repository(self, process: Process, settings: MetaSettings) -> SimRepository:
        engine = open_engine(settings.database_url)

        @event.listens_for(engine, "connect")
        def virtual(connection: Any, _record: Any) -> None:
            # The database's clock is the virtual one: `julianday('now')` is how leases ask for it.
            connection.create_function("julianday", 1, lambda _: self.scheduler.now_us / 86_400e6 + 2440587.5)
            connection.execute("PRAGMA synchronous=OFF")  # what is simulated is the process's death, not the disk's

        return SimRepository(
            Repository(engine, settings.node), self.scheduler, self.faults, lambda: self.may_die(process)
        )
