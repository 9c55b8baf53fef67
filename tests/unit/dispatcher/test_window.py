"""What tasks lack, what a sorter is sent, and when a store must be read again."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tistream.format.change_rows import WATERMARKS
from tistream.format.manifest import ChainPosition
from tistream.model.span import KeySpan
from tistream.wire import file_batch
from tistream.wire.file_batch import FileRef, RowGroupRef
from tistream.wire.sorter import Chain
from tistream_dispatcher.delivery.receivers import FilePlace, Receivers
from tistream_dispatcher.delivery.router import Router, TaskSpan
from tistream_dispatcher.delivery.window import FileWindow, RoutedFile, WindowLimits, batch_for

ROUTER = Router([TaskSpan(1, KeySpan(b"", b"m")), TaskSpan(2, KeySpan(b"m", b""))])
TASKS = [1, 2]


def routed(ts: int, prev_ts: int, *, chain_ts: int = 10, store_id: int = 1) -> RoutedFile:
    group = RowGroupRef(0, 4, 100, 1, 0, b"a", b"b")
    rows = pa.Table.from_pylist(
        [
            {
                "start_key": b"",
                "end_key": b"",
                "region_id": ts,
                "region_version": 1,
                "first_index": 1,
                "log_index": 1,
                "base_ts": None,
                "resolved_ts": 1,
                "after": None,
            }
        ],
        schema=WATERMARKS,
    )
    groups = ROUTER.row_groups([group])
    ref = FileRef("7", "acme", store_id, ts, prev_ts, chain_ts, f"k{ts}", 9, 8, 7, (group,), groups)
    return RoutedFile(ref, ROUTER.watermarks(rows))


def window(*files: RoutedFile, **limits: int) -> FileWindow:
    made = FileWindow(
        WindowLimits(
            **{"window_files": 99, "window_bytes": 1 << 30, "batch_files": 99, "batch_bytes": 1 << 30, **limits}
        )
    )
    for file in files:
        made.add(file)
    return made


def receivers(*at: int | None) -> Receivers:
    """Tasks 1, 2, … at that ts of chain 10 of store 1; None: nothing received."""
    made = Receivers()
    for task, ts in enumerate(at, 1):
        made.set_received(task, {} if ts is None else {1: [Chain(first_ts=10, at_ts=ts)]})
    return made


def stamps(files: tuple[RoutedFile, ...]) -> list[int]:
    return [file.ref.ts for file in files]


FILES = (routed(10, 0), routed(20, 10), routed(30, 20))


def test_a_sorter_is_sent_what_its_slowest_task_lacks():
    held = window(*FILES)
    assert stamps(held.batch(TASKS, receivers(None, None), set())) == [10, 20, 30]
    assert stamps(held.batch(TASKS, receivers(20, 10), set())) == [20, 30]
    assert stamps(held.batch([1], receivers(20, 10), set())) == [30]
    assert stamps(held.batch(TASKS, receivers(30, 30), set())) == []
    assert stamps(held.batch([3], receivers(10), set())) == []
    assert stamps(held.batch(TASKS, receivers(None, None), {1})) == []


def test_batches_and_the_window_are_bounded():
    assert stamps(window(*FILES, batch_files=2).batch(TASKS, receivers(None, None), set())) == [10, 20]
    assert stamps(window(*FILES, batch_bytes=1).batch(TASKS, receivers(None, None), set())) == [10]
    assert window(*FILES, window_files=3).full
    assert window(*FILES, window_bytes=1).full
    assert not window(*FILES).full


def test_what_everybody_has_is_forgotten():
    held = window(*FILES)
    held.trim(receivers(20, 10))
    assert len(held) == 2
    held.trim(receivers(30, 30))
    assert len(held) == 0


def test_every_task_is_named_for_every_file():
    batch = batch_for(5, FILES[:2], TASKS)
    assert [file.row_groups for file in batch.files] == [{1: (0,), 2: ()}] * 2
    rows = batch.watermarks.to_pylist()
    assert [(row["file"], row["task_id"]) for row in rows] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    only = file_batch.decode(file_batch.encode(batch_for(5, FILES[:2], [2])))
    assert [file.row_groups for file in only.files] == [{2: ()}] * 2
    assert [(row["file"], row["task_id"], row["start_key"]) for row in only.watermarks.to_pylist()] == [
        (0, 2, b"m"),
        (1, 2, b"m"),
    ]


def test_a_task_that_lost_what_is_not_here_any_more_is_behind():
    held, taken = window(FILES[1], FILES[2]), [ChainPosition(10, 30)]
    assert not held.must_reread(receivers(30, 30), 1, taken)
    assert not held.must_reread(receivers(30, 10), 1, taken)
    assert held.must_reread(receivers(30, None), 1, taken)
    empty = window()
    assert not empty.must_reread(receivers(30, 30), 1, taken)
    assert not empty.must_reread(receivers(40, 30), 1, taken)
    assert empty.must_reread(receivers(30, 20), 1, taken)
    assert not empty.must_reread(Receivers(), 1, taken)


def test_the_common_position_is_the_least_and_leaves_out_what_some_task_has_not_begun():
    made = Receivers()
    made.set_received(1, {1: [Chain(first_ts=10, at_ts=30), Chain(first_ts=50, at_ts=60)]})
    made.set_received(2, {1: [Chain(first_ts=10, at_ts=20)]})
    assert made.lowest_positions(1) == (ChainPosition(10, 20),)
    assert made.lowest_positions(2) == ()
    made.set_received(2, {1: [Chain(first_ts=50, at_ts=55), Chain(first_ts=10, at_ts=20)]})
    assert made.lowest_positions(1) == (ChainPosition(10, 20), ChainPosition(50, 55))
    made.flushed = {1: 70, 2: 50}
    assert made.lowest_positions(1) == (ChainPosition(50, 55),)
    made.keep_only([2])
    assert made.lowest_positions(1) == (ChainPosition(50, 55),)
    assert made.stores() == {1}


@given(st.lists(st.sampled_from([None, 10, 20, 30]), min_size=1, max_size=4))
def test_from_the_common_position_nobody_is_behind(at):
    known = receivers(*at)
    common = known.lowest_positions(1)
    position = common[0].at_ts if common else 0
    held = window(*(file for file in FILES if file.ref.ts > position))
    assert not held.must_reread(known, 1, [ChainPosition(10, 30)])


def test_a_task_that_has_let_a_closed_chain_go_needs_nothing_of_it() -> None:
    known = Receivers()
    known.set_received(1, {1: [Chain(first_ts=100, at_ts=120)]})
    known.set_received(2, {1: [Chain(first_ts=10, at_ts=20), Chain(first_ts=100, at_ts=120)]})
    known.flushed = {1: 100, 2: 50}
    late = FilePlace(1, 10, 30)
    assert (known.lacks(1, late), known.lacks(2, late)) == (False, True)
    assert known.lowest_positions(1) == (ChainPosition(10, 20), ChainPosition(100, 120))
    assert not FileWindow(WindowLimits(1, 1, 1, 1)).must_reread(known, 1, known.lowest_positions(1))
    assert known.open_chains(1) == {10, 100}
    known.flushed[1] = 99
    assert known.lacks(1, late)
    assert known.lowest_positions(1) == (ChainPosition(100, 120),)
