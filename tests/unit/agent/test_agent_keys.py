"""A region's bound, whatever its bytes, divides raw keys as it divides their encodings."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tistream.schema.tidb.meta_key import encode_bytes
from tistream_agent.core.keys import encoded_bound, raw_bound

FEW = st.sampled_from([0, 1, 97, 0xF7, 0xF8, 0xFA, 0xFE, 0xFF])
RAW = st.lists(FEW, max_size=19).map(bytes)


@given(RAW)
def test_an_encoded_key_is_its_own_bound(raw: bytes) -> None:
    assert raw_bound(encoded_bound(raw)) == raw


@example(b"a" * 8 + b"\xff" + b"b\x00", b"a" * 8 + b"b")
@given(RAW, RAW)
def test_a_bound_divides_raw_keys_as_it_divides_their_encodings(bound: bytes, raw: bytes) -> None:
    assert (encode_bytes(raw) >= bound) == (raw >= raw_bound(bound))


@given(RAW, RAW, st.integers(0, 27))
def test_so_does_a_bound_that_ends_within_an_encoded_key(key: bytes, raw: bytes, size: int) -> None:
    bound = encode_bytes(key)[:size]
    assert (encode_bytes(raw) >= bound) == (raw >= raw_bound(bound))
