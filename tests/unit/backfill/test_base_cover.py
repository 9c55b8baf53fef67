"""The cover of bases: against a dictionary over every key of a small key space."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.model.base_cover import Base, Hole, base_ts_of, clipped, holes, laid_over
from tistream.model.span import KeySpan

KEYS = [bytes([one]) for one in range(1, 9)] + [bytes([one, 5]) for one in range(1, 9)]
KEYS.sort()
bounds = st.sampled_from([b"", *KEYS])


@st.composite
def spans(draw: st.DrawFn) -> KeySpan:
    start, end = draw(bounds), draw(bounds)
    if end and start >= end:
        start, end = end, (start if start != end else b"")
    return KeySpan(start if start != end or not end else b"", end)


bases = st.lists(st.builds(Base, spans(), st.integers(1, 4)), max_size=6)


def newest(all_bases: list[Base], key: bytes) -> int | None:
    return max((base.base_ts for base in all_bases if key in base.span), default=None)


@given(bases, st.randoms(use_true_random=False))
def test_the_newest_base_of_each_key_counts_in_any_order(found: list[Base], rng: random.Random) -> None:
    cover = laid_over((), found)
    for key in [b"", *KEYS]:
        here = [base.base_ts for base in cover if key in base.span]
        assert len(here) <= 1
        assert (here[0] if here else None) == newest(found, key)
    assert all(left.span.end <= right.span.start for left, right in itertools.pairwise(cover))
    one_by_one: tuple[Base, ...] = ()
    for base in rng.sample(found, len(found)):
        one_by_one = laid_over(one_by_one, [base])
    assert one_by_one == cover


@given(bases, st.lists(spans(), min_size=1, max_size=3))
def test_a_table_is_complete_at_the_highest_base_of_a_tiling(found: list[Base], wanted: list[KeySpan]) -> None:
    cover = laid_over((), found)
    answer = base_ts_of(cover, wanted)
    per_key = [newest(found, key) for key in [b"", *KEYS] if any(key in span for span in wanted)]
    lacking = [key for key in [b"", *KEYS] if any(key in span for span in wanted) and newest(found, key) is None]
    if isinstance(answer, Hole):
        assert any(key in answer.span for key in lacking)
        assert all(newest(found, key) is None for key in [b"", *KEYS] if key in answer.span)
    else:
        assert answer == max((one for one in per_key if one is not None), default=0)
        assert not lacking
    gaps = list(holes(cover, wanted))
    assert {key for key in [b"", *KEYS] if any(key in gap for gap in gaps)} == set(lacking)


@given(bases, spans())
def test_a_clipped_cover_says_the_same_of_its_keys(found: list[Base], span: KeySpan) -> None:
    cover = laid_over((), found)
    part = clipped(cover, span)
    for key in [b"", *KEYS]:
        here = [base.base_ts for base in part if key in base.span]
        assert (here[0] if here else None) == (newest(found, key) if key in span else None)


@pytest.mark.parametrize(
    ("bases", "answer"),
    [
        ([("a", "c", 5), ("c", "e", 7)], 7),
        ([("a", "c", 5), ("c", "e", 7), ("a", "e", 9)], 9),
        ([("a", "c", 5), ("d", "e", 7)], Hole(KeySpan(b"c", b"d"))),
        ([("a", "d", 5)], Hole(KeySpan(b"d", b"e"))),
        ([("b", "e", 5)], Hole(KeySpan(b"a", b"b"))),
        ([("b", "", 5)], Hole(KeySpan(b"a", b"b"))),
        ([], Hole(KeySpan(b"a", b"e"))),
        ([("", "", 5)], 5),
        ([("a", "b", 8), ("a", "e", 5)], 8),
    ],
)
def test_examples(bases: list[tuple[str, str, int]], answer: int | Hole) -> None:
    cover = laid_over((), [Base(KeySpan(low.encode(), high.encode()), ts) for low, high, ts in bases])
    assert base_ts_of(cover, [KeySpan(b"a", b"e")]) == answer
