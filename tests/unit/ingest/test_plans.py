"""Pure decisions: spans of shards, cuts of windows, records, and what a status says."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.log_bytes import row_key
from tistream.errors import CorruptObject
from tistream.logbackup.metadata import Slice
from tistream.logbackup.prefix import CHECKPOINTS
from tistream.logbackup.release import Release, ReleaseFile, decode, encode
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import Window, from_physical_ms
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.release_log import ReleaseLog
from tistream_ingest.plan import cuts, spans
from tistream_ingest.plan.checkpoint_state import flush_interval_ms, hold_of_checkpoint, runs_here
from tistream_ingest.plan.cuts import Bin, FileLimits, Survey
from tistream_ingest.plan.rules import SourceRules, may_matter, uploaded_lately

KEYS = st.binary(min_size=1, max_size=30)


def slice_of(low: bytes, high: bytes, plain: int) -> Slice:
    return Slice("v1/x.log", 0, 1, plain, 1, bytes(32), True, "write", True, 5, min(low, high), max(low, high), 1, 9, 1)


@given(st.lists(st.tuples(KEYS, KEYS, st.integers(1, 1 << 29)), max_size=30), st.integers(1 << 16, 1 << 26))
def test_spans_tile_the_key_space_and_every_slice_is_read(found: list[tuple[bytes, bytes, int]], each: int) -> None:
    slices = [slice_of(*one) for one in found]
    cut = spans.spans(slices, each)
    assert cut[0].start == cut[-1].end == b""
    assert all(before.end == after.start for before, after in itertools.pairwise(cut))
    for one in slices:
        held = [span for span, mine in zip(cut, spans.shared_out(slices, cut), strict=True) if one in mine]
        assert held == [span for span in cut if span.touches(one.low, one.high)]
        assert any(one.low in span for span in held)
        assert any(one.high in span for span in held)
    assert len(cut) <= sum(one.plain for one in slices) // each + 1


def test_a_hot_table_is_cut_between_its_bounds() -> None:
    slices = [slice_of(row_key(5, 0), row_key(5, 1 << 20), 1 << 20) for _ in range(16)]
    cut = spans.spans(slices, 4 << 20)
    assert len(cut) == 4
    inner = [int.from_bytes(span.start[11:19].ljust(8, b"\0"), "big") - (1 << 63) for span in cut[1:4]]
    assert inner == pytest.approx([1 << 18, 1 << 19, 3 << 18], rel=0.01)


def test_regions_are_not_cut_where_spans_may_be_larger() -> None:
    bounds = list(range(0, 2_400, 100))
    regions = [slice_of(row_key(5, low), row_key(5, low + 99), 3 << 19) for low in bounds for _ in range(2)]
    cut = spans.spans(regions, 8 << 20)
    sizes = [sum(one.plain for one in mine) for mine in spans.shared_out(regions, cut)]
    assert sum(sizes) == sum(one.plain for one in regions), "no slice is read twice"
    assert all(8 << 20 <= size <= 12 << 20 for size in sizes[:-1])


@st.composite
def surveys(draw: st.DrawFn) -> list[Survey]:
    out = []
    for number in range(draw(st.integers(1, 4))):
        times = sorted(draw(st.sets(st.integers(101, 199), max_size=12)))
        bins = []
        while times:
            count = draw(st.integers(1, len(times)))
            held, times = times[:count], times[count:]
            bins.append(Bin(held[0], held[-1], draw(st.integers(len(held), 40)), draw(st.integers(1, 400))))
        start = b"" if number == 0 else b"%d" % number
        out.append(Survey(KeySpan(start, b"%d" % (number + 1)), tuple(bins)))
    return out


@given(surveys(), st.integers(1, 50), st.integers(1, 500))
def test_pieces_are_a_chain_over_the_window(found: list[Survey], rows: int, size: int) -> None:
    made = cuts.pieces(Window(100, 200), 7, found, FileLimits(rows, size))
    release = Release(1, "log-1", "/log", 100, 200, 90, None, made, (), False)
    assert decode("k", encode(release)) == release
    indexes = [one.index for one in made if one.watermark]
    assert indexes == list(range(7, 7 + len(indexes)))
    for high in {one.high for one in made}:
        same = [one for one in made if one.high == high]
        assert [one.watermark for one in same] == [False] * (len(same) - 1) + [True]
        assert len({one.index for one in same}) == 1
        assert same[0].span.start == same[-1].span.end == b""
        assert all(a.span.end == b.span.start for a, b in itertools.pairwise(same))


def test_a_window_is_cut_at_commits_so_that_files_keep_to_their_size() -> None:
    bins = tuple(Bin(ts, ts, 10, 100) for ts in range(101, 111))
    made = cuts.pieces(Window(100, 200), 1, [Survey(KeySpan(b"", b""), bins)], FileLimits(35, 1 << 20))
    assert [(one.low, one.high) for one in made] == [(100, 103), (103, 106), (106, 109), (109, 200)]
    by_bytes = cuts.pieces(Window(100, 200), 1, [Survey(KeySpan(b"", b""), bins)], FileLimits(1 << 20, 500))
    assert [one.high for one in by_bytes] == [105, 200]


RELEASE = Release(
    3,
    "log-1",
    "/log",
    100,
    200,
    90,
    100,
    (ReleaseFile(150, 100, 150, 4), ReleaseFile(200, 150, 200, 5)),
    ("a.meta",),
    True,
)


@pytest.mark.parametrize(
    "broken",
    [
        replace(RELEASE, files=()),
        replace(RELEASE, low=200),
        replace(RELEASE, high=201),
        replace(RELEASE, prev_ts=150),
        replace(RELEASE, files=(ReleaseFile(150, 100, 150, 4), ReleaseFile(200, 160, 200, 5))),
        replace(RELEASE, files=(ReleaseFile(150, 100, 150, 4), ReleaseFile(201, 150, 200, 5))),
        replace(RELEASE, files=(ReleaseFile(150, 100, 200, 4, False), ReleaseFile(150, 100, 200, 4))),
        replace(RELEASE, files=(ReleaseFile(150, 100, 200, 4, False),)),
        replace(RELEASE, low=-1),
    ],
)
def test_a_record_that_is_no_chain_is_damaged(broken: Release) -> None:
    with pytest.raises(CorruptObject):
        decode("k", encode(broken))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"low": "100"},
        {"low": True},
        {"pieces": 3},
        {"pieces": [{}]},
        {"metas": None},
        {"high": 1 << 63},
    ],
)
def test_a_record_of_another_form_is_damaged(change: dict[str, object]) -> None:
    assert decode("k", encode(RELEASE)) == RELEASE
    found = json.loads(encode(RELEASE)) | change
    for data in (json.dumps(found).encode(), b"{", b"[]"):
        with pytest.raises(CorruptObject):
            decode("k", data)


@given(st.integers(0, 70), st.integers(0, 70))
def test_the_newest_record_is_found_from_any_known_one(count: int, known: int) -> None:
    log = ReleaseLog(MemoryObjectStore(), TenantKey("7", "acme"))
    for number in range(1, count + 1):
        made = replace(RELEASE, number=number)
        assert log.decide(made) == made
        assert log.decide(replace(made, source_id="other")) == made
    newest = log.newest(min(known, count))
    assert (newest.number if newest else 0) == count


def test_a_record_under_another_number_is_damaged() -> None:
    tenant = TenantKey("7", "acme")
    log = ReleaseLog(MemoryObjectStore(), tenant)
    log.objects.put_new(layout.log_release(tenant, 1), encode(RELEASE))
    with pytest.raises(CorruptObject, match="is release 3"):
        log.read(1)


NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("age_s", "moved_s", "reason", "object_"),
    [
        (50, 50, "at each flush", None),
        (359, 1, "at each flush", None),
        (400, 400, "has not moved since 2027-01-15T07:53:20+00:00: `br log status`", CHECKPOINTS),
        (4_000, 10, "4000 s behind", CHECKPOINTS),
        (90_000, 90_000, "more than 24 hours", CHECKPOINTS),
    ],
)
def test_a_checkpoint_that_stands_is_named_with_since_when(
    age_s: int, moved_s: int, reason: str, object_: str | None
) -> None:
    ts = from_physical_ms(NOW - age_s * 1_000)
    hold = hold_of_checkpoint(ts, NOW - moved_s * 1_000, {}, NOW)
    assert (hold.stage, hold.object) == ("push", object_)
    assert reason in hold.reason


def test_the_limit_is_two_flush_intervals() -> None:
    flushes = {1: [NOW - 120_000, NOW - 80_000, NOW - 40_000], 2: [NOW - 40_000]}
    assert flush_interval_ms(flushes) == 40_000
    assert flush_interval_ms({1: [5], 2: []}) is None
    for age_s, held in ((79, False), (81, True)):
        ts = from_physical_ms(NOW - age_s * 1_000)
        assert (hold_of_checkpoint(ts, NOW - age_s * 1_000, flushes, NOW).object is not None) is held
    assert "no checkpoint" in hold_of_checkpoint(0, 0, {}, NOW).reason


def test_each_source_runs_in_one_of_the_living_processes() -> None:
    urls = [f"http://127.0.0.1:{port}" for port in range(4)]
    where = {
        number: [url for url in urls if runs_here(("7", "acme", f"log-{number}"), url, urls)] for number in range(200)
    }
    assert all(len(found) == 1 for found in where.values())
    assert all(sum(found == [url] for found in where.values()) > 20 for url in urls)
    for number, [url] in where.items():  # the others keep theirs when a process goes
        for gone in set(urls) - {url}:
            assert runs_here(("7", "acme", f"log-{number}"), url, [one for one in urls if one != gone])
    assert not runs_here(("7", "acme", "log-1"), "http://127.0.0.1:9", urls)
    assert not runs_here(("7", "acme", "log-1"), urls[0], [])


def test_a_name_rules_metadata_out_only_if_nothing_in_it_is_newer() -> None:
    name = f"{90:016X}{1:016X}-u{80:016X}.meta"
    assert not may_matter(name, 90)
    assert may_matter(name, 89)
    assert may_matter("470596577478311936-uuid.meta", 1 << 60)
    ts = from_physical_ms(NOW)
    assert uploaded_lately("470596577478311936-uuid.meta", NOW, ts)
    assert not uploaded_lately("470596577478311936-uuid.meta", NOW - 7_200_000, ts)


def test_shards_are_as_many_as_slots_within_bounds() -> None:
    rules = SourceRules()
    assert rules.shard_bytes(1 << 20, 8) == rules.shard_bytes_min
    assert rules.shard_bytes(1 << 40, 8) == rules.shard_bytes_max
    assert rules.shard_bytes(64 << 20, 4) == 16 << 20
