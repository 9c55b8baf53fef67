"""Cursors: round trip, and everything that was not given out to this very call is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.read.cursor import Place, Position, Scope, decode, encode

TS = st.integers(0, 2**63 - 1)
POSITIONS = st.builds(Position, TS, st.sampled_from(Place), TS, TS, st.integers(0, 1), st.binary(max_size=4000))
NAMES = st.text(min_size=1, max_size=20)
SCOPES = st.one_of(
    st.builds(Scope, st.just(TenantKey("7", "acme"))),
    st.builds(Scope, st.just(TenantKey("7", "acme")), NAMES),
    st.builds(Scope, st.just(TenantKey("7", "acme")), NAMES, NAMES),
)


@given(SCOPES, POSITIONS)
def test_round_trip(scope: Scope, at: Position) -> None:
    assert decode(scope, encode(scope, at)) == at


@given(SCOPES, POSITIONS, st.data())
def test_a_changed_letter_is_seen(scope: Scope, at: Position, data: st.DataObject) -> None:
    text = encode(scope, at)
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters().filter(lambda one: one != text[place]))
    for wrong in (text[:place] + letter + text[place + 1 :], text[:place], text + letter, text[1:]):
        with pytest.raises(InvalidRequest):
            decode(scope, wrong)


@given(st.text())
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        decode(Scope(TenantKey("7", "acme")), text)


def test_other_scopes_are_refused() -> None:
    scopes = [
        Scope(TenantKey("7", "acme")),
        Scope(TenantKey("8", "acme")),
        Scope(TenantKey("7", "other")),
        Scope(TenantKey("7", "acme"), "shop"),
        Scope(TenantKey("7", "acme"), "shop", "t"),
        Scope(TenantKey("7", "acme"), "shopt"),
        Scope(TenantKey("7", "acme"), "sho", "pt"),
    ]
    for own in scopes:
        text = encode(own, Position(5))
        for other in scopes:
            if own is other:
                assert decode(other, text) == Position(5)
            else:
                with pytest.raises(InvalidRequest, match="belongs to another"):
                    decode(other, text)


def test_names_compare_without_case() -> None:
    text = encode(Scope(TenantKey("7", "acme"), "Shop", "KÜNDE"), Position(5))
    assert decode(Scope(TenantKey("7", "acme"), "sHOP", "künde"), text) == Position(5)


def test_positions_compare_in_the_order_of_events() -> None:
    ordered = [
        Position(4),
        Position(5, Place.ROW, 1, 9, 1, b"z"),
        Position(5, Place.ROW, 2, 1, 0, b"a"),
        Position(5, Place.ROW, 2, 1, 0, b"b"),
        Position(5, Place.ROW, 2, 1, 1, b"a"),
        Position(5, Place.DDL, 0, 1),
        Position(5),
        Position(6, Place.ROW),
    ]
    assert sorted(ordered, reverse=True) == ordered[::-1]
    assert [at.low_ts for at in ordered] == [4, 4, 4, 4, 4, 4, 5, 5]
