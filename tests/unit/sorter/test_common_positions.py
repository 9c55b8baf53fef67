"""From where files come again to a task that carries on several sealed ones."""

from __future__ import annotations

import pytest

from tistream.format.manifest import ChainPosition
from tistream_sorter.state.positions import CHAINS_KEPT, Positions, common


def chains(*pairs: tuple[int, int]) -> tuple[ChainPosition, ...]:
    return tuple(ChainPosition(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("several", "wanted"),
    [
        pytest.param([{1: chains((10, 90))}], {1: chains((10, 90))}, id="one parent"),
        pytest.param([{1: chains((10, 90))}, {1: chains((10, 70))}], {1: chains((10, 70))}, id="the lower one"),
        pytest.param([{1: chains((10, 90))}, {}], {}, id="a store that one has not heard of"),
        pytest.param(
            [{1: chains((10, 90), (100, 120))}, {1: chains((10, 80))}], {1: chains((10, 80))}, id="one not begun"
        ),
        pytest.param(
            [{1: chains((10, 90), (100, 190))}, {1: chains((100, 160))}],
            {1: chains((10, 90), (100, 160))},
            id="one that the other has closed",
        ),
        pytest.param(
            [{1: chains((10, 90), (210, 220))}, {1: chains((210, 230))}],
            {1: chains((210, 220))},
            id="an older one that the other may still need",
        ),
        pytest.param(
            [{1: chains((10, 90)), 2: chains((20, 50))}, {1: chains((10, 95)), 2: chains((20, 40))}],
            {1: chains((10, 90)), 2: chains((20, 40))},
            id="each store by itself",
        ),
    ],
)
def test_files_come_again_from_where_every_parent_has_been(several: list[Positions], wanted: Positions) -> None:
    assert common(several, flushed_ts=200) == wanted
    assert common(several[::-1], flushed_ts=200) == wanted


MANY = {1: chains(*((first, first + 5) for first in range(10, 10 * CHAINS_KEPT + 30, 10)))}


def test_no_chain_is_left_out_that_is_open() -> None:
    assert common([MANY, MANY], flushed_ts=0) == MANY
    assert common([MANY, MANY], flushed_ts=19) == MANY


def test_of_those_that_are_closed_the_oldest_are() -> None:
    assert common([MANY, MANY], flushed_ts=10_000) == {1: MANY[1][-CHAINS_KEPT:]}
    assert common([MANY, MANY], flushed_ts=25) == {1: MANY[1][1:]}
