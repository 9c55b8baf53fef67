"""The rate quotas of a tenant are divided among the workers that send for it."""

from __future__ import annotations

from tistream_meta.feeds.quota_sharers import BUSY_MS, QuotaSharers


def test_a_quota_is_divided_among_the_workers_that_have_sent_lately() -> None:
    sharers = QuotaSharers()
    assert sharers.record("w1", [], 0) == {}
    assert sharers.record("w1", ["7/acme"], 0) == {"7/acme": 1}
    assert sharers.record("w2", ["7/acme", "7/other"], 1_000) == {"7/acme": 2, "7/other": 1}
    assert sharers.record("w3", [], 1_000) == {"7/acme": 3, "7/other": 2}, "if it sends it is one more"
    assert sharers.record("w2", ["7/acme"], BUSY_MS + 1) == {"7/acme": 1, "7/other": 1}, "w1 rests"
    assert sharers.record("w1", [], 3 * BUSY_MS) == {}
