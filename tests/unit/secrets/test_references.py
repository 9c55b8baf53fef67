"""Names of secrets that were taken out of a changefeed's sink URI."""

from __future__ import annotations

import re

import pytest

from tistream.secrets.references import NAME, names_in, of_feed

LONGEST = "claim-check-storage-uri"


@pytest.mark.parametrize(
    "feed_id", ["orders", "a", "0-1", "Orders", "ORDERS", "x" * 37, "x" * 38, "x" * 128, "A-" * 64]
)
def test_every_feed_has_names_of_its_own(feed_id: str) -> None:
    name = f"{of_feed(feed_id)}.{LONGEST}"
    assert re.fullmatch(NAME, name)
    assert names_in(f"kafka://h:1/t?sasl-password=${{secret:{name}}}", {}) == {name}


def test_names_of_two_feeds_differ() -> None:
    ids = ["orders", "Orders", "ORDERS", "x" * 38, "x" * 39, "X" * 38, "order-s"]
    assert len({of_feed(one) for one in ids}) == len(ids)
