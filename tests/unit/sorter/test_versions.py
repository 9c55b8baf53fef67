"""Versions in order of key, newest first, against Python's own order."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.format.run import SCHEMA
from tistream_sorter.match.versions import first_of_key, folded, version_order


def record(table_id: int, handle: int, more: bytes = b"") -> bytes:
    return b"t" + (table_id ^ (1 << 63)).to_bytes(8, "big") + b"_r" + (handle + (1 << 63)).to_bytes(8, "big") + more


def index(table_id: int, rest: bytes) -> bytes:
    return b"t" + (table_id ^ (1 << 63)).to_bytes(8, "big") + b"_i" + rest


FEW = st.integers(0, 3)
KEYS = st.one_of(
    st.builds(record, FEW, FEW),
    st.builds(record, FEW, FEW, st.binary(max_size=2)),
    st.builds(lambda table_id, rest: record(table_id, 0)[: 11 + len(rest)] + rest, FEW, st.binary(max_size=7)),
    st.builds(index, FEW, st.binary(max_size=10)),
)
ANY_KEYS = st.one_of(KEYS, st.binary(max_size=12), st.builds(lambda rest: b"m" + rest, st.binary(max_size=9)))


def check(versions: list[tuple[bytes, int]]) -> None:
    keys = pa.chunked_array([pa.array([key for key, _ in versions], pa.large_binary())])
    order = version_order(keys, np.array([ts for _, ts in versions], np.int64))
    assert [versions[at] for at in order] == sorted(versions, key=lambda one: (one[0], -one[1]))
    rows = keys.take(pa.array(order))
    assert first_of_key(rows).tolist() == [at == 0 or rows[at] != rows[at - 1] for at in range(len(rows))]


@pytest.mark.parametrize("kinds", ["tables", "anything"])
@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_any_keys_are_ordered_as_bytes(kinds: str, data: st.DataObject) -> None:
    found = st.tuples(KEYS if kinds == "tables" else ANY_KEYS, st.integers(1, 2**62))
    check(data.draw(st.lists(found, max_size=30, unique=True)))


def test_many_versions_of_few_keys_and_one_of_many() -> None:
    rng = random.Random(4)
    handles = [rng.randrange(-(2**63), 2**63) for _ in range(500)]
    check([(record(rng.randrange(3), rng.choice(handles[:5])), ts) for ts in range(1, 2_000)])
    check([(record(7, handle), 2**61 + rng.randrange(1 << 30)) for handle in handles])
    check([])
    check([(record(1, 1), 5)])
    check([(record(1, 1), 5), (record(1, 1), 6)])
    check([(record(1, 1), 5), (record(1, 2), 6)])


def test_a_fold_keeps_the_newest_put() -> None:
    columns = {
        "table_id": [1] * 6,
        "key": [b"a", b"a", b"b", b"c", b"c", b"d"],
        "commit_ts": [5, 3, 4, 9, 2, 1],
        "start_ts": [1] * 6,
        "op": [1, 2, 2, 2, 1, 1],
        "value": [b"new", None, None, None, b"old", b"only"],
        "txn_source": [None] * 6,
    }
    rows = folded(pa.table(columns, schema=SCHEMA))
    assert [rows.column(name).to_pylist() for name in ("key", "commit_ts", "value")] == [
        [b"a", b"d"],
        [5, 1],
        [b"new", b"only"],
    ]
