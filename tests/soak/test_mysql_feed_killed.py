"""A changefeed into a real MariaDB: its connections are killed and its holders replaced at random moments."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from support.mariadb import MariaDb, running
from support.mysql_feed import MySqlFeedRun, emptied, join, killed, tables_of, there, wanted
from support.pull_world import committed, golden_world
from support.waiting import PAUSE_S
from tistream.rules.table_rules import TableRules
from tistream_changefeed.hold.holder import Holder

# MariaDB has no VECTOR and no defaults from sequences; rows of EXCHANGE PARTITION have no events.
RULES = ["*.*", "!types.*", "!shop.with_seq", "!shop.p_hash", "!shop.p_x"]
STRIKES = 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with running(Path(tmp_path_factory.mktemp("mariadb"))) as one:
        yield one


class Worker:
    """A holder in a thread of its own, until it ends."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        pause = threading.Event()
        while self.holder.shard.phase not in ("finished", "failed", "fenced"):
            if self.holder.step() is not None:
                pause.wait(PAUSE_S)
        self.holder.stop()
        self.holder.run()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> str:
        """The phase in which it ended."""
        join(self._thread, self.holder)
        return self.holder.shard.phase


@pytest.mark.parametrize("seed", range(4))
def test_each_row_is_there_once_though_connections_and_holders_are_killed(server: MariaDb, seed: int) -> None:
    emptied(server)
    rng, pause = Random(seed), threading.Event()
    world = golden_world("everything")
    document = {"force-replicate": True, "filter": {"rules": RULES}}
    run = MySqlFeedRun(world, server, document, "?worker-count=4", slot_rows=rng.choice((1, 20)))
    workers = [Worker(run.holder())]
    for _ in range(STRIKES):
        pause.wait(rng.uniform(0.02, 0.8))
        if not workers[-1].alive:
            break
        if rng.random() < 0.3:
            workers.append(Worker(run.holder()))  # the one before goes on until the database refuses it
        else:
            killed(server)
    phases = [one.join() for one in workers]
    assert phases[-1] == "finished"
    assert set(phases[:-1]) <= {"fenced", "finished"}
    chosen = TableRules.parse(RULES, case_sensitive=True)
    tables = [one for one in tables_of(world) if chosen.matches(*one.name)]
    assert [one.name for one in tables if there(server, one) != wanted("everything", one)] == []


@pytest.mark.parametrize("seed", range(4))
def test_shards_that_begin_with_rows_are_killed_and_each_row_is_there_once(server: MariaDb, seed: int) -> None:
    emptied(server)
    rng, pause = Random(seed), threading.Event()
    world, stamps = golden_world("everything"), committed("everything")[0]["commit_ts"].unique().sort()
    document = {"force-replicate": True, "filter": {"rules": RULES}}
    start_ts = stamps[rng.randrange(len(stamps) // 5, len(stamps) // 2)]
    run = MySqlFeedRun(
        world,
        server,
        document,
        "?worker-count=3&snapshot=now",
        slot_rows=rng.choice((1, 20)),
        window_bytes=rng.choice((4_000, 20_000)),
        start_ts=start_ts,
        shards=2,
        sync_ms=100,
    )
    workers = [[Worker(run.holder(shard))] for shard in range(2)]
    for _ in range(STRIKES):
        pause.wait(rng.uniform(0.02, 0.8))
        if not any(of[-1].alive for of in workers):
            break
        shard = rng.randrange(2)
        if rng.random() < 0.4:
            workers[shard].append(Worker(run.holder(shard)))
        else:
            killed(server)
    phases = [[one.join() for one in of] for of in workers]
    assert [of[-1] for of in phases] == ["finished", "finished"], [of[-1].holder.report().error for of in workers]
    chosen = TableRules.parse(RULES, case_sensitive=True)
    tables = [one for one in tables_of(world) if chosen.matches(*one.name)]
    assert [one.name for one in tables if there(server, one) != wanted("everything", one)] == []
    assert len(server.run("SELECT primary_ts FROM tidb_cdc.syncpoint_v1")) > 30
