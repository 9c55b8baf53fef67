"""What is read by signed ranges is what a pull sends, and no byte of another table can be fetched."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.pull_world import World, golden_world
from support.signed_world import (
    EACH,
    Expired,
    Filter,
    Reader,
    answers_of,
    expected,
    fetch_from,
    segments_of,
    with_own_groups,
)
from tistream.errors import CorruptObject
from tistream.format.parquet_footer import footer_of_groups, read_footer
from tistream.model.ts import Window
from tistream.pool.rows import open_segment, read_row_groups
from tistream.read.cursor import Position, Scope
from tistream.read.plan import GroupRef
from tistream.read.signed import signed_read, signed_source
from tistream.read.signed.signed_read import TableRead
from tistream.schema.visible import fold
from tistream.wire.signed import SignedGroup
from tistream_api.signed.signed_answer import NothingSigned, Signing, next_stretch, only_of


def tables_of(world: World) -> list[Scope]:
    found = world.source.tables_within(Window(world.snapshot_ts, world.end_ts), Scope(world.tenant))
    names = sorted({version.name for version in found})
    return [Scope(world.tenant, *name) for name in names]


@pytest.fixture(scope="module")
def world() -> World:
    return with_own_groups(golden_world("everything", tasks=2, ticks=4))


def test_signed_ranges_give_what_a_pull_sends(world: World) -> None:
    """Every table of the set, through renames, exchanged partitions, truncations and other DDL."""
    fetched = 0
    for scope in tables_of(world):
        reader = Reader(world, scope, EACH)
        assert reader.rows() == expected(world, scope), scope.shown
        fetched += reader.groups
    assert fetched > 30


@pytest.fixture(scope="module")
def split() -> World:
    """Segments whose row groups have few keys each."""
    return with_own_groups(golden_world("everything", tasks=4, ticks=30))


def conditions(world: World, scope: Scope, rng: random.Random) -> Filter:
    """A filter over columns that a table has at some time. In other times it may lack them."""
    versions = [
        one
        for one in world.source.tables_within(Window(world.snapshot_ts, world.end_ts), Scope(world.tenant))
        if one.folded == (fold(scope.database or ""), fold(scope.table or ""))
    ]
    columns = [f"`{column.name.replace('`', '``')}`" for column in rng.choice(versions).table.visible_columns]

    def one() -> str:
        name = rng.choice([columns[0], rng.choice(columns)])  # the first one is most often the key
        return rng.choice([f"{name} is null", f"{name} is not null", f"{name} = {rng.randrange(50)}", "1 = 1", "0 = 1"])

    where = rng.choice([None, one(), f"{one()} or not ({one()})", f"{one()} and {one()}"])
    some = rng.sample(["insert", "update", "delete"], rng.randrange(1, 4))
    return Filter(rng.choice([None, ",".join(some)]), where)


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_filters_give_the_events_that_a_pull_with_them_sends(world: World, split: World, seed: int) -> None:
    """Also where the table lacks a column of the condition for a while, so that the pull ends there."""
    rng = random.Random(seed)
    for one in (world, split):
        scope = rng.choice(tables_of(one))
        filters = conditions(one, scope, rng)
        reader = Reader(one, scope, replace(EACH, groups=rng.choice([1, 3, 64])), filters=filters)
        assert reader.rows() == expected(one, scope, filters), (scope.shown, filters)


def test_rows_that_a_condition_cannot_judge_are_left_to_the_pull(world: World) -> None:
    scope = Scope(world.tenant, "shop", "ddl1")
    filters = Filter(where="c = 7")  # a column that is added later
    reader = Reader(world, scope, EACH, filters=filters)
    assert reader.rows() == expected(world, scope, filters)
    assert reader.blocked


def test_rows_of_a_large_transaction_are_filtered_piece_by_piece(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(signed_read, "BUDGET", replace(signed_read.BUDGET, rows=40, first_rows=3))
    scope = Scope(world.tenant, "shop", "big")
    for filters in (Filter(where="id % 7 = 3"), Filter(where="id < 0"), Filter("delete")):
        assert Reader(world, scope, EACH, filters=filters).rows() == expected(world, scope, filters), filters


@pytest.mark.parametrize(
    "filters", [Filter(where="id = 3"), Filter(where="id = 900 and s > 0"), Filter(where="id < 0")]
)
def test_row_groups_that_a_filter_excludes_are_not_given(split: World, filters: Filter) -> None:
    scope = Scope(split.tenant, "shop", "busy")
    some, every = (Reader(split, scope, EACH, filters=one) for one in (filters, Filter(where="s is not null")))
    assert some.rows() == expected(split, scope, filters)
    assert every.rows()
    assert len(some.given) < len(every.given) / 2, (len(some.given), len(every.given))


def test_small_answers_and_urls_that_expire_lose_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also inside of a commit_ts that does not fit into memory at once."""
    world = with_own_groups(golden_world("everything", tasks=3, ticks=12))
    monkeypatch.setattr(signed_read, "BUDGET", replace(signed_read.BUDGET, rows=40, first_rows=3))
    monkeypatch.setattr(signed_source, "CACHE_BYTES", 0)  # a row group is fetched for each piece of rows
    answers = expired = inside = 0
    for scope, most in itertools.product(
        sorted(tables_of(world), key=lambda one: -len(expected(world, one)))[:4], (1, 5)
    ):
        number, fatal = itertools.count(1), {at * (at + 1) for at in range(2, 40)}

        def fetch(group: SignedGroup, number: itertools.count[int] = number, fatal: set[int] = fatal) -> bytes:
            if next(number) in fatal:
                raise Expired
            return fetch_from(world.objects)(group)

        reader = Reader(world, scope, replace(EACH, groups=most), fetch)
        assert reader.rows() == expected(world, scope), (scope.shown, most)
        answers, expired, inside = answers + reader.answers, expired + reader.expired, inside + reader.inside
    assert answers > expired > 20
    assert inside > 0


def test_what_is_in_shared_row_groups_is_pulled() -> None:
    """Every second segment has row groups of several tables."""
    world = golden_world("everything", tasks=2, ticks=6)
    every_second = {one.key for one in segments_of(world)[::2]}
    for index in world.indexes:
        kept = [one for one in index.segments if one.key not in every_second]
        with_own_groups(replace(world, indexes=[index]), every_second)
        index.update((*index.segments, *kept))
    ways = {"pulls": 0, "groups": 0}
    for scope in tables_of(world):
        reader = Reader(world, scope, EACH)
        assert reader.rows() == expected(world, scope), scope.shown
        ways["pulls"] += reader.pulls
        ways["groups"] += reader.groups
    assert min(ways.values()) > 20


def test_a_reader_gets_no_byte_of_another_table(world: World) -> None:
    """Each row of what can be fetched is of a table that bore the name when the row was committed: also where a table
    was renamed, or was exchanged with a partition, inside of a row group."""
    withheld = 0
    for scope in tables_of(world):
        window = Window(world.snapshot_ts, world.end_ts)
        answer = answers_of(world).answer(world.source, scope, window, world.end_ts, replace(EACH, groups=10_000))
        own = {one.key: one for one in segments_of(world)}
        for one in answer.objects:
            places = [group.range for group in open_segment(world.objects, own[one.key]).footer.groups]
            indexes = [places.index((group.start, group.length)) for group in one.groups]
            rows = read_row_groups(world.objects, own[one.key], indexes, ["table_id", "commit_ts"])
            for row in rows.to_pylist():
                version = world.history.table_at(row["table_id"], row["commit_ts"])
                assert version is not None
                assert version.folded == (fold(scope.database or ""), fold(scope.table or ""))
        ids = world.source.physical_ids(scope, window)
        assert ids is not None
        refs = [GroupRef(segment, at) for segment in own.values() for at in range(len(segment.row_groups))]
        mine = [ref for ref in refs if ref.info.table_id_min in ids]
        withheld += sum(not only_of(world.source, scope, ref, world.end_ts) for ref in mine)
    assert withheld > 0


def test_names_above_the_resolved_ts_are_not_known_yet(world: World) -> None:
    scope = max(tables_of(world), key=lambda scope: len(expected(world, scope)))
    window = Window(world.snapshot_ts, world.end_ts)
    found = next_stretch(world.source, scope, window, world.end_ts, EACH)
    last = max(group.info.commit_ts_max for group in found.groups)
    assert found.direct
    lower = next_stretch(world.source, scope, window, last - 1, EACH)
    assert all(group.info.commit_ts_max < last for group in lower.groups)


def test_a_footer_of_some_row_groups_reads_the_same_file(world: World) -> None:
    segment = max(segments_of(world), key=lambda one: len(one.row_groups))
    footer = open_segment(world.objects, segment).footer
    some = [2, 0]
    tail = footer_of_groups(footer, some)
    found = read_footer(segment.key, tail, segment.size)
    assert [group.rows for group in found.groups] == [segment.row_groups[at].rows for at in some]  # type: ignore[union-attr]
    assert [group.range for group in found.groups] == [footer.groups[at].range for at in some]  # type: ignore[union-attr]
    assert all(one.low is None for group in found.groups for one in group.chunks)  # type: ignore[union-attr]
    file = pq.ParquetFile(
        pa.BufferReader(world.objects.get(segment.key)),
        metadata=found.metadata,  # type: ignore[union-attr]
    )
    assert file.read_row_group(0).equals(
        pq.ParquetFile(pa.BufferReader(world.objects.get(segment.key))).read_row_group(2)
    )


def test_an_answer_that_does_not_fit_its_bytes_is_refused(world: World) -> None:
    scope = max(tables_of(world), key=lambda scope: len(expected(world, scope)))
    window = Window(world.snapshot_ts, world.end_ts)
    answer = answers_of(world).answer(world.source, scope, window, world.end_ts, EACH).model_dump(mode="json")
    read = TableRead(scope, Position(world.snapshot_ts))
    with pytest.raises(CorruptObject, match="bytes in place of"):
        list(read.batches(answer, lambda group: fetch_from(world.objects)(group)[:-1]))
    damaged = lambda group: bytes(len(fetch_from(world.objects)(group)))  # noqa: E731
    with pytest.raises(CorruptObject, match="cannot be decoded"):
        list(read.batches(answer, damaged))
    answer["objects"][0]["groups"][0]["start"] += 1
    with pytest.raises(CorruptObject, match="other row groups than the answer"):
        list(read.batches(answer, fetch_from(world.objects)))
    with pytest.raises(CorruptObject, match="not that of this version"):
        list(read.batches({"direct": True}, fetch_from(world.objects)))


@pytest.mark.parametrize(("signing", "text"), [(Signing(None, 300), "directory"), (Signing(lambda *_: "", 0), "is 0")])
def test_what_signs_nothing_says_why(signing: Signing, text: str) -> None:
    with pytest.raises(NothingSigned, match=f"{text}.*read without direct"):
        signing.signer()
