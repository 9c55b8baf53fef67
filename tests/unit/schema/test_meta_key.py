import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.schema.tidb.meta_key import MetaKey, decode_bytes, decode_key, encode_bytes, encode_key

VECTORS = {
    "": "00000000000000 00f7",
    "00": "0000000000000000f8",
    "010203": "0102030000000000fa",
    "01020300": "0102030000000000fb",
    "01020304050607": "0102030405060700fe",
    "0000000000000000": "0000000000000000ff0000000000000000f7",
    "0102030405060708": "0102030405060708ff0000000000000000f7",
    "010203040506070809": "0102030405060708ff0900000000000000f8",
}

KEYS = [
    (b"DB:56", b"TID:108", "6d44423a3536000000fc00000000000000685449443a31303800fe"),
    (b"DBs", b"DB:1", "6d4442730000000000fa000000000000006844423a3100000000fb"),
    (
        b"DB:1",
        b"Table:45",
        "6d44423a3100000000fb00000000000000685461626c653a3435ff0000000000000000f7",
    ),
    (b"SchemaVersionKey", None, "6d536368656d615665ff7273696f6e4b6579ff0000000000000000f70000000000000073"),
    (b"Diff:30", None, "6d446966663a333000fe0000000000000073"),
    (
        b"DDLJobHistory",
        (100).to_bytes(8, "big"),
        "6d44444c4a6f624869ff73746f7279000000fc00000000000000680000000000000064ff0000000000000000f7",
    ),
]


@pytest.mark.parametrize(("plain", "encoded"), VECTORS.items())
def test_memcomparable_vectors(plain: str, encoded: str) -> None:
    assert encode_bytes(bytes.fromhex(plain)) == bytes.fromhex(encoded)
    assert decode_bytes(bytes.fromhex(encoded), 0) == (bytes.fromhex(plain), len(bytes.fromhex(encoded)))


@pytest.mark.parametrize(("key", "field", "raw"), KEYS)
def test_meta_key_vectors(key: bytes, field: bytes | None, raw: str) -> None:
    assert encode_key(key, field) == bytes.fromhex(raw)
    assert decode_key(bytes.fromhex(raw)) == MetaKey(key, field)


@given(st.binary(), st.binary())
def test_memcomparable_keeps_the_order_and_comes_back(one: bytes, two: bytes) -> None:
    assert (encode_bytes(one) < encode_bytes(two)) == (one < two)
    assert decode_bytes(encode_bytes(one) + two, 0) == (one, len(encode_bytes(one)))


@given(st.binary(max_size=80))
def test_hostile_keys_are_refused_or_taken_apart(raw: bytes) -> None:
    try:
        found = decode_key(b"m" + raw)
    except ValueError:
        return
    if found is not None:
        assert encode_key(found.key, found.field) == b"m" + raw


@pytest.mark.parametrize("letter", ["48", "4c", "6c"])
def test_lists_and_hash_metas_say_nothing(letter: str) -> None:
    assert decode_key(b"m" + encode_bytes(b"DDLJobList") + bytes.fromhex("00000000000000" + letter)) is None


@pytest.mark.parametrize("raw", [b"", b"t123456789", b"m", b"m" + b"\x01" * 8, b"m" + b"\x01" * 8 + b"\xf0"])
def test_what_is_no_meta_key(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"m key|memcomparable"):
        decode_key(raw)
