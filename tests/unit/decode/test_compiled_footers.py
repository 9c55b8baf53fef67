"""Compiled code that parses footers finds what plain code finds, and leaves to it what is not sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.footer_damage import compared, damaged, feet, foot_of
from support.small_files import sound
from tistream.decode.footers import SMALL_END, SMALL_FOOTER, use_compiled
from tistream.decode.footers.parser import parse
from tistream.decode.footers.row_groups import check_groups
from tistream.decode.footers.scan import scan
from tistream.errors import CorruptObject
from tistream.format import parquet_footer
from tistream.format import thrift_compact as thrift
from tistream.format.parquet_footer import ParquetFooter, parse_body, read_footer, use_parser


@pytest.fixture
def compiled() -> Iterator[None]:
    use_compiled()
    yield
    use_parser(None)


@pytest.mark.parametrize("seed", range(4))
def test_compiled_code_finds_what_plain_code_finds(seed: int, tmp_path: Path) -> None:
    found = Counter(compared(foot, end) for foot, end in damaged(feet(str(tmp_path / "file")), seed, 250))
    assert found["accepted"] > 50
    assert found["refused"] > 300
    assert found["left to plain code"] < 20


def test_sound_footers_are_parsed_by_compiled_code(tmp_path: Path) -> None:
    for foot, end in feet(str(tmp_path / "file")):
        assert compared(foot, end) == "accepted"


leaf = (
    st.tuples(st.sampled_from([thrift.I16, thrift.I32, thrift.I64]), st.integers(-(2**63), 2**63 - 1))
    | st.tuples(st.just(thrift.BINARY), st.binary(max_size=200))
    | st.booleans().map(lambda value: (thrift.TRUE if value else thrift.FALSE, value))
    | st.tuples(st.just(thrift.DOUBLE), st.binary(min_size=8, max_size=8))
    | st.tuples(st.just(thrift.BYTE), st.integers(0, 255))
    | st.lists(st.integers(-5, 5), max_size=20).map(lambda values: (thrift.LIST, (thrift.I32, values)))
)
values = leaf | st.dictionaries(st.integers(-100, 3000), leaf, max_size=6).map(lambda found: (thrift.STRUCT, found))


def nth(struct: thrift.Struct, place: int) -> thrift.Struct:
    """A struct of SMALL_FOOTER: the file, an element of the schema, the row group, its chunk, the chunk's metadata."""
    group = struct[4][1][1][0]
    chunk = group[1][1][1][0]
    return [struct, struct[2][1][1][1], group, chunk, chunk[3][1]][place]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 70), values | st.none()), max_size=3))
def test_any_field_in_any_place_is_judged_alike(changes: list[tuple[int, int, tuple[int, object] | None]]) -> None:
    struct = thrift.read_struct(SMALL_FOOTER)
    for place, number, value in changes:
        try:
            into = nth(struct, place)
        except (KeyError, TypeError, IndexError):  # the change before it has removed that struct
            continue
        if value is None:
            into.pop(number, None)
        else:
            into[number] = value
    compared(thrift.write_struct(struct), SMALL_END)


@pytest.mark.parametrize(
    ("numbers", "judged"),
    [((70, 60, 71), "accepted"), ((70, 60, 70), "refused"), ((70, 60, 65), "left to plain code")],
)
def test_fields_in_any_order_occur_once(numbers: tuple[int, ...], judged: str) -> None:
    assert SMALL_FOOTER.endswith(b"\0")
    foot = bytearray(SMALL_FOOTER[:-1])
    for number in numbers:
        zigzag = 2 * number
        foot += bytes((thrift.BYTE, zigzag)) + (b"\1" if zigzag > 127 else b"") + b"\7"
    assert compared(bytes(foot) + b"\0", SMALL_END) == judged


@pytest.mark.parametrize("column", [5, 6, 7, 9, 11])
def test_numbers_at_their_limits_are_judged_alike(column: int) -> None:
    for value in (-(2**63), -1, 0, 1, 2, 3, 4, 5, 2**31, 2**63 - 1):
        struct = thrift.read_struct(SMALL_FOOTER)
        nth(struct, 4)[column] = (thrift.I64, value)
        compared(thrift.write_struct(struct), SMALL_END)


def test_sizes_that_add_up_to_more_than_64_bits_are_left_to_plain_code() -> None:
    struct = thrift.read_struct(SMALL_FOOTER)
    chunk, root, leaf_ = nth(struct, 3), struct[2][1][1][0], nth(struct, 1)
    nth(struct, 4)[6] = (thrift.I64, 2**63 - 1)
    assert compared(thrift.write_struct(struct), SMALL_END) == "accepted"
    root[5] = (thrift.I32, 2)
    struct[2][1][1].append(leaf_)
    nth(struct, 2)[1][1][1].append(chunk)
    foot = thrift.write_struct(struct)
    assert parse(foot, SMALL_END) is None
    assert parse_body(foot, SMALL_END).groups[0].unpacked == 2**64 - 2


@pytest.mark.parametrize("kinds", [(thrift.STRUCT,), (thrift.LIST,), (thrift.STRUCT, thrift.LIST)])
def test_nesting_at_its_limit_is_judged_alike(kinds: tuple[int, ...]) -> None:
    judged = []
    for depth in range(2 * thrift.MAX_DEPTH):
        kind, value = thrift.I32, 0
        for level in range(depth):
            outer = kinds[level % len(kinds)]
            kind, value = outer, ({1: (kind, value)} if outer == thrift.STRUCT else (kind, [value]))
        struct = thrift.read_struct(SMALL_FOOTER) | {20: (kind, value)}
        judged.append(compared(thrift.write_struct(struct), SMALL_END))
    refused = judged.index("refused")
    assert 8 < refused < 20
    assert judged == ["accepted"] * refused + ["refused"] * (len(judged) - refused)


@pytest.mark.parametrize("times", [30, 300_000])
def test_nesting_and_fields_of_a_hostile_footer_are_bounded(compiled: None, times: int) -> None:
    for foot, reason in (
        (b"\x1c" * times, "nested too deeply"),
        (b"\x19\x19" + b"\x19" * times, "nested too deeply"),
        (b"\x19\xf9" + b"\xff" * times, "more than 64 bits"),
        (b"\x18" + b"\xff" * times, "more than 64 bits"),
        (b"\x05\x02\x02" * times, "occurs twice"),
    ):
        file = b"PAR1" + foot + len(foot).to_bytes(4, "little") + b"PAR1"
        with pytest.raises(CorruptObject, match=reason):
            read_footer("k", file, len(file))


def test_a_process_that_uses_compiled_code_has_compiled_it_once(
    compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(data: bytes, end: int) -> None:
        raise AssertionError("a sound footer was parsed by plain code")

    monkeypatch.setattr(parquet_footer, "parse_body", never)
    data = sound()
    footer = read_footer("k", data, len(data))
    assert isinstance(footer, ParquetFooter)
    assert footer.groups == parse_body(*foot_of(data)).groups
    assert len(scan.signatures) == 1  # type: ignore[attr-defined]
    assert len(check_groups.signatures) == 1  # type: ignore[attr-defined]
