"""Versions are sorted by whole keys, whatever keys they have, and equal ones keep their order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.log_bytes import index_key, row_key
from tistream.model.version_order import version_order

SMALL = st.integers(0, 6)
TAIL = st.binary(max_size=4)
KEYS = st.one_of(
    st.builds(row_key, st.integers(1, 3), SMALL),
    st.builds(row_key, st.integers(1, 1 << 60), st.integers(0, (1 << 64) - 1)),
    st.builds(lambda tail: row_key(1, 7)[:11] + b"same-beginning" + tail, TAIL),
    st.builds(lambda table, tail: index_key(table, b"same-beginning"[: len(tail)] + tail), st.integers(1, 2), TAIL),
    st.builds(lambda cut, tail: row_key(1, 0)[:cut] + tail, st.integers(0, 19), st.sampled_from([b"", b"\0", b"\0\0"])),
    st.binary(max_size=24),
)


@settings(max_examples=examples(2_000))
@given(st.lists(st.tuples(KEYS, st.one_of(SMALL, st.integers(0, 1 << 62))), max_size=24))
def test_versions_are_in_the_order_of_key_and_ts(versions: list[tuple[bytes, int]]) -> None:
    found = version_order(
        pa.array([key for key, _ in versions], pa.binary()), np.array([ts for _, ts in versions], np.int64)
    )
    wanted = sorted(range(len(versions)), key=lambda row: versions[row])
    assert found.rows.tolist() == wanted
    keys = [None, *(versions[row][0] for row in wanted)]
    assert found.same_key.tolist() == [key == before for before, key in pairwise(keys)]
