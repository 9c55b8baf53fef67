"""`limit=1` and `limit=7` from the first event to the last: every cursor that exists is used once."""

from __future__ import annotations

from pathlib import Path

from support import golden, platform
from support.compare import content
from support.pull import Event


def test_the_whole_tenant_by_sevens_and_a_database_one_by_one(tmp_path: Path) -> None:
    loaded = golden.load("everything")
    with platform.running(tmp_path, ranges=4) as up:
        golden.push(loaded.deliveries, up.objects)
        consumer = up.create_for(loaded)
        start = loaded.snapshot_ts
        for limit, scope in [(7, ()), (1, ("types",)), (1, ("other",)), (1, ("shop", "busy"))]:
            whole = consumer.pull(*scope, until_ts=loaded.end_ts, start_ts=start, limit=100_000)
            got: list[Event] = []
            query: dict[str, int] = {"start_ts": start, "limit": limit}
            for page in consumer.pages(*scope, until_ts=loaded.end_ts, query=query, timeout=240):
                got += page.events
            assert content(got) == content(whole)
