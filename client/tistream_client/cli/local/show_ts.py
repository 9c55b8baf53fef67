"""The implementation of `tistream ts`."""

from __future__ import annotations

from collections.abc import Sequence

from tistream_client.cli.output import show_list
from tistream_client.cli.times import parse_ts, shown_time

_COUNTER = (1 << 18) - 1


def show_ts(texts: Sequence[str]) -> None:
    """Print the TSO and the time of each text. Raises BadParameter if a text is neither a TSO nor a time."""
    items = [
        {"ts": str(ts), "time": shown_time(str(ts)).replace(" ", "T") + "Z", "counter": ts & _COUNTER}
        for ts in map(parse_ts, texts)
    ]
    show_list("times", items, ("ts", "time", "counter"), [tuple(map(str, one.values())) for one in items])
