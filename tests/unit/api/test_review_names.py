"""Random histories of names: PullDB and PullTable are PullTenant, filtered by the names of each moment."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.review_world import brief, change, paged, pulled, review_world
from support.row_bytes import compact, row_v2
from support.schema_records import DONE, WRITE_ONLY, column, database, drop, job, table, table_info
from tistream.read.scan import Budget
from tistream.schema.records import Record

DATABASES = {1: "d", 2: "mysql", 3: "E"}
NAMES = ("t", "U", "w")


class Upstream:
    """Tables by id, moved about by DDL; what is shown of each row is told by looking at the tables themselves."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ts = 20
        self.next_id = 100
        self.tables: dict[int, tuple[int, str, tuple[int, ...]]] = {}  # id -> database id, name, partitions
        self.dead: list[int] = [999]
        self.records: list[Record] = [database(10, number, name) for number, name in DATABASES.items()]
        self.records.append(table(10, 2, table_info(999, "user")))
        self.rows: list[dict[str, Any]] = []
        self.want: list[tuple[int, str, str, str]] = []

    def put(self, table_id: int) -> None:
        database_id, name, partitions = self.tables[table_id]
        info = table_info(
            table_id, name, [column(1, "id", flag=3), "v"], pk_is_handle=True, partitions=partitions or None
        )
        self.records.append(table(self.ts, database_id, info))

    def free_name(self) -> tuple[int, str] | None:
        taken = {(database_id, name) for database_id, name, _ in self.tables.values()}
        free = [(number, name) for number in DATABASES for name in NAMES if (number, name) not in taken]
        return self.random.choice(free) if free else None

    def ids(self, count: int) -> list[int]:
        self.next_id += count
        return list(range(self.next_id - count, self.next_id))

    def create(self) -> None:
        place = self.free_name()
        if place is None:
            return
        table_id, *partitions = self.ids(self.random.choice((1, 3)))
        self.tables[table_id] = (*place, tuple(partitions))
        self.put(table_id)
        self.done(3, table_id)

    def lose(self, table_id: int) -> tuple[int, str, tuple[int, ...]]:
        database_id, name, partitions = self.tables.pop(table_id)
        self.dead += partitions or (table_id,)
        self.records.append(drop(self.ts, database_id, table_id))
        return database_id, name, partitions

    def rename(self, table_id: int) -> None:
        place = self.free_name()
        if place is None:
            return
        database_id, _, partitions = self.tables[table_id]
        self.records.append(drop(self.ts, database_id, table_id))
        self.tables[table_id] = (*place, partitions)
        if place[0] == database_id:
            self.records.pop()
        self.put(table_id)
        self.done(14, table_id)

    def truncate(self, table_id: int) -> None:
        database_id, name, partitions = self.lose(table_id)
        new_id, *new_partitions = self.ids(1 + len(partitions))
        self.tables[new_id] = (database_id, name, tuple(new_partitions))
        self.put(new_id)
        self.done(11, table_id)

    def exchange(self, table_id: int) -> None:
        whole = [other for other, (_, _, partitions) in self.tables.items() if partitions]
        if not whole or self.tables[table_id][2]:
            return
        other = self.random.choice(whole)
        database_id, name, _ = self.tables.pop(table_id)
        first, *rest = self.tables[other][2]
        self.tables[other] = (*self.tables[other][:2], (table_id, *rest))
        self.tables[first] = (database_id, name, ())
        self.records.append(drop(self.ts, database_id, table_id))
        self.put(first)
        self.put(other)
        self.done(42, table_id)

    def hide(self, table_id: int) -> None:
        self.put(table_id)
        record = self.records.pop()
        database_id, name, partitions = self.tables.pop(table_id)
        info = table_info(table_id, name, state=WRITE_ONLY, partitions=partitions or None)
        self.records.append(table(record.commit_ts, database_id, info))
        self.dead += partitions or (table_id,)
        self.done(4, table_id)

    def done(self, action: int, table_id: int) -> None:
        self.records.append(job(self.ts, self.ts, action, DONE, table_id=table_id, existed=False))

    def write(self) -> None:
        """One transaction over some tables, dead ones too, possibly at the ts of the DDL that follows."""
        shown = {
            one: (*place[:2], table_id) for table_id, place in self.tables.items() for one in place[2] or (table_id,)
        }
        for physical_id in self.random.sample([*shown, *self.dead], k=min(3, len(shown) + len(self.dead))):
            handle = self.random.randrange(5)
            self.rows.append(change(self.ts, physical_id, handle, row_v2({2: compact(self.ts % 100)})))
            if physical_id in shown and shown[physical_id][0] != 2:
                database_id, name, table_id = shown[physical_id]
                self.want.append((self.ts, DATABASES[database_id], name, str(table_id)))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.write()
            self.ts += self.random.choice((0, 0, 1, 5))
            kind = self.random.choice((self.create, self.rename, self.truncate, self.exchange, self.hide))
            if self.records[-1].commit_ts < self.ts:
                if kind == self.create or not self.tables:
                    self.create()
                else:
                    kind(self.random.choice(list(self.tables)))  # type: ignore[call-arg]
            self.ts += self.random.choice((1, 3))


def concerns(event: dict[str, Any], *names: str) -> bool:
    places = [event, *event.get("involved", ())]
    told = [(place["database"].lower(), place["table"].lower()) for place in places]
    return any(place[: len(names)] == names for place in told)


@pytest.mark.parametrize("seed", range(25))
def test_pulls_by_name_are_the_tenants_pull_filtered(seed: int) -> None:
    upstream = Upstream(seed)
    upstream.run(40)
    budget = Budget() if seed % 2 else Budget(6, 3, 1 << 20, 8)
    one = review_world(upstream.records, upstream.rows, tasks=1 + seed % 4, budget=budget)
    every = pulled(one)
    rows = [(int(e["commit_ts"]), e["database"], e["table"], e["table_id"]) for e in every if e["type"] == "row"]
    assert sorted(rows) == sorted(upstream.want)
    assert paged(one, limit=1 + seed % 5) == every
    for name in ("d", "e"):
        want = [event for event in every if concerns(event, name)]
        assert brief(pulled(one, name.upper())) == brief(want)
        for table_name in ("t", "u", "w"):
            want = [event for event in every if concerns(event, name, table_name)]
            assert brief(pulled(one, name, table_name)) == brief(want)
            assert brief(paged(one, name, table_name, limit=2)) == brief(want)
