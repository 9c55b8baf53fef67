from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.versions_world import int_key
from tistream.format.run import OBJECT_BYTES
from tistream.pool import key_filter
from tistream.pool.key_filter import built, checked, filter_bytes, parsed


@settings(max_examples=examples(200, few=50), deadline=None)
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=60))
def test_every_key_of_the_object_passes(keys: list[bytes]) -> None:
    found = built(pa.array(keys, pa.large_binary()))
    assert found.may_hold(pa.array(keys)).all()
    assert found.may_hold(pa.array([], pa.binary())).tolist() == []


def test_one_of_a_hundred_other_keys_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, others = ([int_key(7, 2 * at + odd) for at in range(20_000)] for odd in (0, 1))
    for at_once in (1 << 16, 777):  # keys at a time
        monkeypatch.setattr(key_filter, "_AT_ONCE", at_once)
        found = built(pa.array(keys))
        assert len(found.bits) == 25_000
        assert found.may_hold(pa.array(keys)).all()
        assert 0 < found.may_hold(pa.array(others)).sum() < 200


def test_the_bits_of_version_1() -> None:
    """Filters stay readable: with other bits, a reader of another release would miss rows."""
    found = built(pa.array([b"", b"a", b"t\x80\0\0\0\0\0\0\x64_r\x80\0\0\0\0\0\0\x01"]))
    assert (found.hashes, found.bits.hex()) == (7, "27f90ad4")
    assert found.stated() == b"1,7,4,dde5fe83"


def test_a_filter_has_a_limit() -> None:
    assert [filter_bytes(rows) for rows in (1, 8, 100_000, OBJECT_BYTES)] == [2, 10, 125_000, 1 << 20]


def test_a_filter_is_what_its_object_states() -> None:
    found = built(pa.array([b"a", b"b"]))
    stated = parsed(found.stated())
    assert stated is not None
    assert checked(stated, found.bits) == found
    for bits in (found.bits[:-1], found.bits + b"\0", bytes([found.bits[0] ^ 1]) + found.bits[1:]):
        with pytest.raises(ValueError, match="checksum"):
            checked(stated, bits)


@pytest.mark.parametrize(
    "value", [b"", b"1", b"1,7,8", b"1,7,8,0,0", b"1,0,8,0", b"1,81,8,0", b"1,7,0,0", b"1,7,1048577,0", b"1,7,8,xy"]
)
def test_no_filter_is_made_of_what_states_none(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of int, of unpacking, or our own
        parsed(value)


def test_a_filter_of_a_later_version_is_not_used() -> None:
    assert parsed(b"2,anything") is None
