"""What becomes an event and what does not; rows that cannot be shown; crowded transactions in small memory."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

import polars as pl
import pytest

from support.effort import cases
from support.pull_world import World, golden_world
from tistream.errors import Undecodable
from tistream.read.cursor import Position, Scope, decode
from tistream.read.scan import Budget

NAMELESS = b"t" + (2**63 + 999_999).to_bytes(8, "big") + b"_r" + (2**63 + 1).to_bytes(8, "big")


def biggest(rows: pl.DataFrame) -> int:
    """The commit_ts with most rows."""
    return int(rows.group_by("commit_ts").len().sort("len", descending=True)["commit_ts"][0])


def broken(place: int, column: str = "value") -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Cuts a value of the biggest transaction short."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows.sort("commit_ts", "key").with_row_index()
        own = rows.filter(pl.col(column).is_not_null() & (pl.col("table_id") > 100))
        own = own.filter(pl.col("commit_ts") == biggest(own))
        at = own["index"][place]
        cut = pl.when(pl.col("index") == at).then(pl.lit(b"\x80\x00\x05\x00")).otherwise(pl.col(column))
        return rows.with_columns(cut.alias(column)).drop("index")

    return change


def lines(one: World, *names: str, start: Position) -> tuple[list[dict[str, str]], Position]:
    out = [json.loads(line) for line in one.pull(*names, start=start).splitlines()]
    return out, decode(Scope(one.tenant, *names), out[-1]["cursor"])


@functools.cache
def healthy_lines() -> list[dict[str, str]]:
    """All of `large`."""
    healthy = golden_world("large", tasks=3)
    return lines(healthy, start=Position(healthy.snapshot_ts))[0]


SMALL = Budget(100, 10, 1 << 20, 200)


@pytest.mark.parametrize(
    ("place", "budget"),
    cases([(0, SMALL), (4_000, Budget()), (-1, SMALL)], [(0, Budget()), (4_000, SMALL), (-1, Budget())]),
)
def test_an_undecodable_row_ends_the_answer_below_it_and_refuses_the_next(place: int, budget: Budget) -> None:
    one = golden_world("large", tasks=3, change=broken(place), budget=budget)
    full = healthy_lines()
    got, at = lines(one, start=Position(one.snapshot_ts))
    bad_ts = at.commit_ts + 1
    assert got[-1]["resolved_ts"] == str(at.commit_ts)
    assert got[:-1] == [event for event in full[:-1] if int(event["commit_ts"]) < bad_ts]
    assert any(event.get("commit_ts") == str(bad_ts) for event in full)
    for start in (at, Position(bad_ts - 1)):
        with pytest.raises(Undecodable) as error:
            next(one.answer(start=start))  # where the answer still has a status
        assert error.value.http_status == 422
        assert error.value.extra["commit_ts"] == str(bad_ts)
        assert error.value.extra["table"] in str(error.value)
        assert error.value.extra["key"] in str(error.value)
        assert bytes.fromhex(str(error.value.extra["key"]))[:1] == b"t"
    beyond, _ = lines(one, start=Position(bad_ts))  # whoever chooses to skip it can
    assert beyond[:-1] == [event for event in full[:-1] if int(event["commit_ts"]) > bad_ts]


def test_an_undecodable_old_row_is_no_less_undecodable() -> None:
    one = golden_world("everything", change=broken(0, "old_value"))
    _, at = lines(one, start=Position(one.snapshot_ts))
    with pytest.raises(Undecodable):
        one.pull(start=at)


def test_other_pulls_go_on_beside_an_undecodable_row() -> None:
    one, healthy = golden_world("everything", change=broken(3)), golden_world("everything")
    _, at = lines(one, start=Position(one.snapshot_ts))
    with pytest.raises(Undecodable) as error:
        one.pull(start=at)
    database, table = str(error.value.extra["table"]).split(".")
    assert (database, table) != ("types", "everything")
    start = Position(one.snapshot_ts)
    assert one.pull("types", "everything", start=start) == healthy.pull("types", "everything", start=start)
    with pytest.raises(Undecodable):
        one.pull(database, table, start=at)
    with pytest.raises(Undecodable):
        one.pull(database, start=at)


def nameless(**changed: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Add a row of a table that no schema named in the middle of the others; `changed` overrides its columns."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        ts = rows["commit_ts"].sort()[rows.height // 2]
        row = {"key": NAMELESS, "start_ts": ts - 1, "commit_ts": ts, "op": 1, "value": b"\x80\x00", "table_id": 999_999}
        return pl.concat([rows, pl.DataFrame([row | changed], schema_overrides=rows.schema)], how="diagonal")

    return change


@pytest.mark.parametrize("changed", [{}, {"op": 2, "value": None, "old_value": b"\x80\x00"}])
def test_a_row_of_a_table_that_no_schema_named_stops_the_tenant_alone(changed: dict[str, object]) -> None:
    one, healthy = golden_world("everything", change=nameless(**changed)), golden_world("everything")
    _, at = lines(one, start=Position(one.snapshot_ts))
    with pytest.raises(Undecodable, match="no schema ever named") as error:
        next(one.answer(start=at))
    assert error.value.extra["table_id"] == "999999"
    assert error.value.extra["key"] == NAMELESS.hex()
    for names in (("shop",), ("types", "everything")):
        start = Position(one.snapshot_ts)
        assert one.pull(*names, start=start) == healthy.pull(*names, start=start)


def test_a_delete_of_a_row_that_was_not_there_needs_no_schema() -> None:
    """TiDB removes the rows of a dropped table after its `m` key. If a tenant begins between the two, with a log, whose
    changes have the old values that the pool has, the deletes of these rows have none."""
    one, healthy = golden_world("everything", change=nameless(op=2, value=None)), golden_world("everything")
    start = Position(one.snapshot_ts)
    assert lines(one, start=start)[0] == lines(healthy, start=start)[0]


def test_of_one_transaction_and_table_deletes_come_first_also_when_it_is_cut() -> None:
    for budget in (Budget(), Budget(64, 8, 1 << 20, 64)):
        one = golden_world("everything", tasks=4, budget=budget)
        puts: set[tuple[str, str]] = set()
        for line in one.pull(start=Position(one.snapshot_ts)).splitlines():
            event = json.loads(line)
            if event["type"] == "row":
                group = (event["start_ts"], event["table_id"])
                assert event["op"] == "put" or group not in puts
                puts |= {group} if event["op"] == "put" else set()
