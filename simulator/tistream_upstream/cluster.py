"""A simulated TiKV cluster with TiDB: the caller advances the clock and gets change files and truth lines (sums of the
events that a pull must have returned). No I/O.

Equal config, seed, times of `advance` and answers give equal effects, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tistream.model.span import KeySpan
from tistream_upstream.config import ClusterConfig
from tistream_upstream.effects import Effect, WriteTruth
from tistream_upstream.schema import ddl_steps, system_tables
from tistream_upstream.schema.catalog import Catalog, dump
from tistream_upstream.schema.codec import record_key, table_prefix
from tistream_upstream.schema.schema_change import TableShape
from tistream_upstream.schema.table_info import database_info
from tistream_upstream.tikv.agents import Agents
from tistream_upstream.tikv.kv import Kv
from tistream_upstream.tikv.late_uploads import LateUploads
from tistream_upstream.tikv.regions import Region, RegionMap
from tistream_upstream.work.churn import Churn
from tistream_upstream.work.ddl import Ddl
from tistream_upstream.work.load import Load
from tistream_upstream.work.session import Session
from tistream_upstream.work.truth import Truth
from tistream_upstream.world import World

_FIRST_INDEX = 5
_FORGET_MS = 5_000
_LAST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters since the start of a cluster, and its present number of regions and of rows."""

    begun: int
    committed: int
    rolled_back: int
    files: int
    file_rows: int
    file_bytes: int
    scans: int
    ddl_jobs: int
    ddl_cancelled: int
    regions: int
    live_rows: int


class Cluster:
    """The simulated cluster. `snapshot_ts` is the ts at which its history begins, and `schema_snap` the content of the
    object with the schemas of that ts; both are known once it is constructed."""

    def __init__(self, config: ClusterConfig, seed: int) -> None:
        self.config = config
        self.truth = Truth(keep=config.keep_truth)
        self._world = World(seed, config.begin_ms)
        self._effects: list[Effect] = []
        self.catalog = _catalog(config, self._world)
        for table in self.catalog.usable():
            shown = self.catalog.databases[table.database_id].name
            self.truth.add_table(TableShape(table.id, shown, table.name, table.layout))
        self.regions = _regions(config, self.catalog)
        stores = range(1, config.stores + 1)
        self.kv = Kv(self._world, self.regions, stores, self.truth)
        self.agents = Agents(config, self._world, self.regions, self.kv, self._effects)
        self._session = Session(config, self._world, self.kv)
        self._load = Load(config, self._world, self.kv, self.catalog, self._session)
        self._session.rewrite = self._load.rewrite
        self.churn = Churn(config, self._world, self.regions, self.kv, self.agents, self.catalog)
        self.late_uploads = LateUploads(self._world, self.regions, self.agents, self.churn.elect)
        self.ddl = Ddl(config, self._world, self.kv, self.catalog, self._session)
        self._store_schema()
        self._load.start()
        self._world.run_until(config.begin_ms + config.warm_ms)
        self.snapshot_ts = self._begin()

    def _store_schema(self) -> None:
        for database in self.catalog.databases.values():
            info = database_info(database.id, database.name)
            self.kv.preload(ddl_steps.database_key(database.id), dump(info))
        for table in self.catalog.usable():
            self.kv.preload(ddl_steps.table_key(table.database_id, table.id), dump(table.info()))

    def _begin(self) -> int:
        snapshot_ts = self.kv.final_ts()
        tables = self.catalog.usable()
        self.schema_snap = system_tables.schema_snap(snapshot_ts, list(self.catalog.databases.values()), tables)
        self.truth.begin(snapshot_ts)
        self._effects.append(WriteTruth(snapshot_ts, self.truth.line().encode()))
        self.agents.start(snapshot_ts)
        self.churn.start()
        self.ddl.start()
        self._world.after(self.config.truth_ms, self._tell)
        self._world.after(self._forget_ms, self._forget)
        return snapshot_ts

    # -- time -----------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The cluster's clock, in Unix milliseconds."""
        return self._world.now_ms

    def ts(self) -> int:
        """Take a timestamp from the cluster's PD: it is above all earlier ones."""
        return self._world.ts()

    @property
    def promised_ts(self) -> int:
        """The ts up to which the pushed files contain every commit. Open locks and lost files keep it low."""
        return self.agents.promised_ts()

    def advance(self, to_ms: int) -> list[Effect]:
        """Advance the clock to `to_ms`, and return the effects for the caller to carry out, in order."""
        self._world.run_until(to_ms)
        return self._taken()

    def _taken(self) -> list[Effect]:
        out = list(self._effects)
        self._effects.clear()
        return out

    def _tell(self) -> None:
        self.settle()
        self._world.after(self.config.truth_ms, self._tell)

    def settle(self) -> int:
        """Add a truth line that counts every commit that is final by now. Returns the line's ts."""
        ts = self.kv.final_ts()
        if ts > self.truth.ts:
            self.truth.settle(ts)
            self._effects.append(WriteTruth(ts, self.truth.line().encode()))
        return self.truth.ts

    def _forget(self) -> None:
        self.kv.forget(self.agents.horizon_ts())
        self._world.after(self._forget_ms, self._forget)

    @property
    def _forget_ms(self) -> int:
        return min(_FORGET_MS, 1 + self.config.history_ms)

    # -- answers and the end --------------------------------------------------------------------------------------

    def coverage(self, request: int, slices: Iterable[tuple[KeySpan, int]]) -> bool:
        """Pass the platform's answer to the request AskCoverage: the (span, resolved_ts) of each slice that overlaps
        the requested span.

        Returns False if a resolved_ts is so low that the cluster no longer has the versions above it; the caller must
        then ask the platform again later.
        """
        return self.agents.coverage(request, slices)

    def hold_load(self, hold: bool) -> None:
        """Pause the start of transactions, or resume it. Transactions that would have begun during the pause are never
        made."""
        self._load.held = hold

    def stop(self) -> None:
        """Begin no more transactions, DDL jobs or region changes. The caller must continue to call `advance` until
        `quiet` is true."""
        self._load.stopped = self.churn.stopped = self.ddl.stopped = True
        self._session.hurry()

    @property
    def quiet(self) -> bool:
        """Whether, after `stop`, transactions and jobs have ended, coverage is answered, and no chain is broken."""
        return not (self._session.open or self.ddl.busy or self.agents.asked or self.agents.haunted)

    def finish(self) -> tuple[int, list[Effect]]:
        """End the run, which must be `quiet`. Returns the ts of the last truth line, and the last effects: files with
        watermarks above that ts."""
        assert self.quiet, "transactions, jobs or scans have not ended"
        end_ts = self.settle()
        for _ in range(_LAST_ROUNDS):  # the entry that removes a lock is not the last one of its log
            for region in self.regions.all:
                region.append()
            for store in self.agents.stores.values():
                if not store.gone:
                    store.up = True
                    self.agents.push(store, now=True)
            self._world.run_until(self._world.now_ms + 1)
        return end_ts, self._taken()

    @property
    def totals(self) -> Totals:
        """The present counters."""
        session, agents = self._session, self.agents
        return Totals(
            session.begun,
            session.committed,
            session.rolled_back,
            agents.pushed_files,
            agents.pushed_rows,
            agents.pushed_bytes,
            agents.scans,
            self.ddl.jobs,
            self.ddl.cancelled,
            len(self.regions.all),
            self.truth.live,
        )


def _catalog(config: ClusterConfig, world: World) -> Catalog:
    """Make the catalog with the initial databases and tables."""
    catalog = Catalog(world.rng("catalog"))
    databases = [catalog.add_database(catalog.new_name("db")) for _ in range(config.databases)]
    for number in range(config.tables):
        handle = config.handles[number % len(config.handles)]
        indexed = catalog.rng.random() < config.indexed
        database = databases[number % len(databases)]
        table = catalog.make_table(database.id, catalog.new_name("t"), handle, config.columns, indexed=indexed)
        catalog.tables[table.id] = table
    return catalog


def _regions(config: ClusterConfig, catalog: Catalog) -> RegionMap:
    """Make the initial regions: the keys are split between tables first, then inside of tables. The stores lead them in
    turn."""
    tables = catalog.usable()
    cuts = [table_prefix(table.id) for table in tables] + [table_prefix(system_tables.MDL_INFO)]
    cuts += [b"t"]
    inside = [record_key(table.id, (1 << 31) // 8 * part) for part in (4, 2, 6, 1, 3, 5, 7) for table in tables]
    wanted = [*cuts, *inside][: max(0, config.regions - 1)]
    edges = [b"", *sorted(set(wanted)), b""]
    return RegionMap(
        Region(number, 1, KeySpan(start, end), _FIRST_INDEX, 1 + number % config.stores)
        for number, (start, end) in enumerate(pairwise(edges), start=2)
    )
