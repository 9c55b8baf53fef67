"""Routing agrees with the plain definition, row by row and task by task."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.format.change_rows import WATERMARKS
from tistream.model.span import KeySpan
from tistream_dispatcher.delivery.router import Router, TaskSpan

KEYS = st.binary(max_size=3)


@dataclass(frozen=True)
class Group:
    index: int
    key_min: bytes | None
    key_max: bytes | None


@st.composite
def tasks(draw: st.DrawFn) -> list[TaskSpan]:
    bounds = [b"", *sorted(draw(st.sets(st.binary(min_size=1, max_size=3), max_size=6))), b""]
    return [TaskSpan(100 + i, KeySpan(bounds[i], bounds[i + 1])) for i in range(len(bounds) - 1)]


@st.composite
def spans(draw: st.DrawFn) -> KeySpan:
    low, high = sorted([draw(KEYS), draw(KEYS)])
    return KeySpan(low, b"" if low == high or draw(st.booleans()) else high)


def watermark_rows(of: list[KeySpan]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "start_key": span.start,
                "end_key": span.end,
                "region_id": number,
                "region_version": 1,
                "first_index": 5,
                "log_index": 7,
                "base_ts": 3 if number % 2 else None,
                "resolved_ts": 9,
                "after": [{"region_id": 1, "log_index": 2}] if number % 3 == 0 else None,
            }
            for number, span in enumerate(of)
        ],
        schema=WATERMARKS,
    )


@given(tasks(), st.lists(spans(), max_size=8))
def test_watermarks_go_to_every_task_that_they_overlap_clipped(of, rows):
    routed = Router(of).watermarks(watermark_rows(rows)).to_pylist()
    wanted = [
        (number, task.task_id, clipped.start, clipped.end)
        for number, span in enumerate(rows)
        for task in of
        if (clipped := span.clip(task.span)) is not None
    ]
    assert [(row["region_id"], row["task_id"], row["start_key"], row["end_key"]) for row in routed] == wanted
    for row in routed:
        assert row["base_ts"] == (3 if row["region_id"] % 2 else None)
        assert row["after"] == ([{"region_id": 1, "log_index": 2}] if row["region_id"] % 3 == 0 else None)


@given(tasks(), st.lists(st.tuples(KEYS, KEYS), max_size=5))
def test_row_groups_go_to_every_task_that_their_keys_touch(of, bounds):
    groups = [Group(index, min(pair), max(pair)) for index, pair in enumerate(bounds)]
    routed = Router(of).row_groups(groups)
    for task in of:
        wanted = [g.index for g in groups if task.span.touches(g.key_min or b"", g.key_max or b"")]
        assert list(routed.get(task.task_id, ())) == wanted


def test_a_row_group_without_statistics_goes_to_all():
    of = [TaskSpan(1, KeySpan(b"", b"m")), TaskSpan(2, KeySpan(b"m", b""))]
    assert Router(of).row_groups([Group(0, None, None)]) == {1: (0,), 2: (0,)}


@pytest.mark.parametrize(
    "of",
    [
        [],
        [TaskSpan(1, KeySpan(b"a", b""))],
        [TaskSpan(1, KeySpan(b"", b"a"))],
        [TaskSpan(1, KeySpan(b"", b"a")), TaskSpan(2, KeySpan(b"b", b""))],
    ],
)
def test_tasks_must_cover_the_key_space(of):
    with pytest.raises(ValueError, match=r"key space|gaps"):
        Router(of)
