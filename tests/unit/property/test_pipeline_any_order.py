"""Files in any order, keys cut anywhere: the pool is what the oracle says. More of it: tests/soak/test_any_order.py."""

from __future__ import annotations

from support import golden
from support.any_order import check


def test_the_pool_is_what_the_oracle_says() -> None:
    """One order and one cut: it takes half a minute of processor time."""
    check(golden.load("everything"), "any", tasks=5, seed=5, tick_share=0.2)
