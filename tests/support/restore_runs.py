"""A restore as an ingest process runs it: rows of a golden set, the real book of restores, and a real target."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import update

from support.audit_world import World as MetaWorld
from support.points_world import PointWorld, point_world
from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream.wire.bulk.restores import IfExists, NewRestore, Place, RestoreInfo, RestoreName, RestoreWork
from tistream_ingest.jobs.local import LocalRunner
from tistream_ingest.restore.allowed import AllowedTargets
from tistream_ingest.restore.chunk_io import ChunkWork
from tistream_ingest.restore.restore_attempt import RestoreAttempt
from tistream_ingest.restore.tenants import TenantReads
from tistream_meta.database import tables
from tistream_meta.restores.book import RestoreBook
from tistream_meta.routes.restore_routes import info_of

ACME = TenantKey("7", "acme")
_NUMBERS = itertools.count(1)  # the worlds of golden sets are shared


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Process:
    """Runs work in this process, one thing after the other, and is killed before its `at`th chunk is written, or with
    `after` just after that."""

    objects: ObjectStore
    at: int | None = None
    after: bool = False
    written: int = 0
    slots: int = 2
    meanwhile: Callable[[], None] = lambda: None  # before each chunk

    def each(self, tenant: TenantKey, work: Callable[[ObjectStore, Any], Any], things: Sequence[Any]) -> list[Any]:
        local = LocalRunner(open_objects, self.objects)
        found = []
        for one in things:
            writes = isinstance(one, ChunkWork) and one.write
            if writes:
                self.meanwhile()
            if writes and self.at == self.written and not self.after:
                raise Killed
            found += local.each(tenant, work, [one])
            if writes:
                if self.at == self.written and self.after:
                    raise Killed
                self.written += 1
        return found


@dataclass
class RestoreRuns:
    """One restore after the other. `folder` holds the meta database and the targets."""

    folder: Path
    golden: str = "everything"
    points: PointWorld = field(init=False)
    book: RestoreBook = field(init=False)
    metered: list[int] = field(default_factory=list)  # the rows that attempts have counted

    def __post_init__(self) -> None:
        self.points = point_world(self.golden, tasks=4, indexed=True)
        self.meta = MetaWorld(self.folder)
        self.meta.tenant("acme")
        self.book = self.meta.repository.part(RestoreBook)
        (self.folder / "dsn").mkdir()

    def queue(self, place: Place, ts: int, *names: tuple[str, str], if_exists: IfExists = "fail") -> str:
        """A new restore; its id."""
        wanted_tables = [RestoreName(database=database, table=table) for database, table in names]
        wanted = NewRestore(
            restore_id=f"{next(_NUMBERS):032x}", ts=str(ts), tables=wanted_tables, target=place, if_exists=if_exists
        )
        self.book.add(ACME, wanted)
        return wanted.restore_id

    def url(self, name: str) -> str:
        """A target below the allowed prefix."""
        return f"file://{self.folder}/targets/{name}"

    def claim(self, process: Process | None = None) -> RestoreAttempt:
        """Claim the next restore, as a process does."""
        found = self.book.claim("ingest-1")
        assert found is not None
        wanted = NewRestore.model_validate_json(found.wanted)
        work = RestoreWork(cluster_id="7", tenant_id="acme", epoch=found.epoch, wanted=wanted)
        objects = self.points.world.objects
        return RestoreAttempt(
            work,
            objects,
            self.reads(),
            Process(objects) if process is None else process,
            self.allowed(),
            lambda report: self.book.report(ACME, wanted.restore_id, report),
            self.metered.append,
        )

    def reads(self) -> TenantReads:
        """The schema and the pool of the golden set."""
        world, shards = self.points.world, self.points.reads.shards()
        return TenantReads(lambda _: world.history, lambda _: (world.end_ts, shards))

    def allowed(self) -> AllowedTargets:
        """The settings of the process."""
        return AllowedTargets([f"file://{self.folder}/targets"], str(self.folder / "dsn"))

    def info(self, restore_id: str) -> RestoreInfo:
        """What callers see."""
        return info_of(self.book.one(ACME, restore_id))

    def lease_ends(self) -> None:
        """The time of a lease goes by: the rows of the book are as if it had."""
        self.book._write(lambda connection: connection.execute(update(tables.restores).values(lease_until_ms=0)))
