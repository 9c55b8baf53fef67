"""Files in any order, keys cut anywhere: the pool is what the oracle says. More of it: tests/soak/test_any_order.py."""

from __future__ import annotations

import pytest

from support import golden
from support.any_order import check
from support.effort import cases


@pytest.mark.parametrize(
    ("name", "tasks", "seed", "tick_share"), cases([("large", 2, 1, 0.5)], [("everything", 5, 5, 0.2)])
)
def test_the_pool_is_what_the_oracle_says(name: str, tasks: int, seed: int, tick_share: float) -> None:
    """`everything` takes half a minute of processor time."""
    check(golden.load(name), "any", tasks, seed, tick_share)
