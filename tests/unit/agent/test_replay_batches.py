"""Batches of a replay: every change, in order for each key, within the limits."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tistream_agent.replay.batches import BYTES_MAX, KEYS_MAX, Batch, RawWrite, batches, shares

NOW_S = 1_000
KEYS = [b"r\0\0\0" + bytes([one]) for one in range(6)]
EXPIRIES = [0, NOW_S - 1, NOW_S, NOW_S + 7]
WRITES = st.lists(
    st.builds(
        RawWrite,
        st.sampled_from(KEYS),
        st.none() | st.binary(max_size=3),
        st.sampled_from(EXPIRIES),
    ),
    max_size=60,
)


def applied(batch: Batch) -> list[tuple[bytes, bytes | None, int]]:
    if not batch.puts:
        return [(key, None, 0) for key in batch.keys]
    return list(zip(batch.keys, batch.values, batch.ttls, strict=True))


def wanted(write: RawWrite) -> tuple[bytes, bytes | None, int]:
    if write.value is None or (write.expire_ts and write.expire_ts <= NOW_S):
        return write.key, None, 0
    return write.key, write.value, write.expire_ts - NOW_S if write.expire_ts else 0


@given(WRITES, st.integers(1, 5))
def test_each_key_sees_its_changes_in_order_and_once(writes: list[RawWrite], workers: int) -> None:
    made = [list(batches(share, NOW_S)) for share in shares(writes, workers)]
    assert len(made) == workers
    owners = [{key for batch in found for key in batch.keys} for found in made]
    assert all(left.isdisjoint(right) for left, right in itertools.combinations(owners, 2))
    for found in made:
        assert all(len(set(batch.keys)) == len(batch) > 0 for batch in found)
    done = [one for found in made for batch in found for one in applied(batch)]
    for key in KEYS:
        assert [one for one in done if one[0] == key] == [wanted(write) for write in writes if write.key == key]


# Attack: values that are larger than a batch may be, and more keys than it may have
def test_a_batch_is_within_the_limits_unless_one_value_is_above_them() -> None:
    huge = RawWrite(b"r\0\0\0huge", bytes(3 * BYTES_MAX))
    wide = [RawWrite(b"r\0\0\0w%03d" % one, bytes(BYTES_MAX // 4)) for one in range(20)]
    many = [RawWrite(b"r\0\0\0m%06d" % one, None) for one in range(2 * KEYS_MAX + 5)]
    found = list(batches([huge, *wide, *many], NOW_S))
    sizes = [sum(map(len, batch.keys + batch.values)) for batch in found]
    assert [size for size in sizes if size > BYTES_MAX] == [huge.size]
    assert max(map(len, found)) == KEYS_MAX
    assert sum(map(len, found)) == 1 + len(wide) + len(many)


def test_an_empty_value_is_a_put() -> None:
    (batch,) = batches([RawWrite(b"r\0\0\0k", b"")], NOW_S)
    assert (batch.puts, batch.values) == (True, (b"",))
