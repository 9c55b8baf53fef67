"""The golden sets, pushed at once, cut into 1, 4, 16 and 64 ranges: what is pulled is what TiDB said, completely."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import pytest

from support import golden, platform
from support.compare import concerns, content, names, shown, tenant_differences
from support.golden import GoldenSet
from support.pull import Consumer, Event

pytestmark = pytest.mark.e2e

PAGE = 200_000


@dataclasses.dataclass
class Pulled:
    """A tenant that is complete, and one uninterrupted pull of it."""

    golden: GoldenSet
    consumer: Consumer
    events: list[Event]

    @property
    def all(self) -> list[str]:
        """The rows and DDLs as text."""
        return content(self.events)


@pytest.fixture(scope="module", params=[1, 4, 16, 64])
def pulled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pulled]]:
    with platform.running(tmp_path_factory.mktemp("up"), ranges=request.param) as up:
        out = {}
        for name in golden.NAMES:
            loaded = golden.load(name)
            golden.push(loaded.deliveries, up.objects)
            consumer = up.create_for(loaded)
            consumer.wait_for(loaded.end_ts, timeout=120)
            events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=PAGE)
            out[name] = Pulled(loaded, consumer, events)
        yield out


@pytest.mark.parametrize("name", golden.NAMES)
def test_pull_tenant_is_what_tidb_said(pulled: dict[str, Pulled], name: str) -> None:
    one = pulled[name]
    problems = tenant_differences(one.golden, one.events)
    assert not problems, shown(problems)


@pytest.mark.parametrize("name", golden.NAMES)
def test_every_table_and_database_is_the_tenant_filtered_by_name(pulled: dict[str, Pulled], name: str) -> None:
    one = pulled[name]
    databases, tables = names(one.events)
    assert tables
    for scope in [*((database,) for database in sorted(databases)), *sorted(tables)]:
        got = one.consumer.pull(*scope, until_ts=one.golden.end_ts, start_ts=one.golden.snapshot_ts, limit=PAGE)
        want = content(event for event in one.events if concerns(event, *scope))
        assert content(got) == want, scope


@pytest.mark.parametrize("name", golden.NAMES)
def test_small_pages_and_every_cursor_give_the_same_events(pulled: dict[str, Pulled], name: str) -> None:
    one = pulled[name]
    rng = random.Random(7)
    start = {"start_ts": one.golden.snapshot_ts}
    cursors: list[tuple[int, str]] = []
    got: list[Event] = []
    for page in one.consumer.pages(until_ts=one.golden.end_ts, query={**start, "limit": 97}, timeout=240):
        got += page.events
        cursors.append((len(got), page.cursor))
    assert content(got) == one.all
    for seen, cursor in rng.sample(cursors, min(12, len(cursors))):
        rest: list[Event] = []
        for page in one.consumer.pages(until_ts=one.golden.end_ts, query={"cursor": cursor, "limit": PAGE}):
            rest += page.events
        assert content(rest) == one.all[seen:]


@pytest.mark.parametrize("limit", [1, 7])
@pytest.mark.parametrize("name", golden.NAMES)
def test_tiny_pages(pulled: dict[str, Pulled], name: str, limit: int) -> None:
    """A stretch of the stream, page by page, entered at a cursor in its middle; every page's cursor is used."""
    one = pulled[name]
    rng = random.Random(limit)
    for _ in range(3):
        at = rng.randrange(len(one.all) - 60)
        first = one.consumer.page(start_ts=one.golden.snapshot_ts, limit=at + 1)
        seen, cursor = len(first.events), first.cursor
        got: list[Event] = []
        for page in one.consumer.pages(until_ts=one.golden.end_ts, query={"cursor": cursor, "limit": limit}):
            got += page.events
            if len(got) >= 50:
                break
        assert content(got) == one.all[seen : seen + len(got)]


@pytest.mark.parametrize("name", golden.NAMES)
def test_a_start_ts_between_commits_cuts_exactly(pulled: dict[str, Pulled], name: str) -> None:
    one = pulled[name]
    stamps = sorted({int(event["commit_ts"]) for event in one.events if "commit_ts" in event})
    rng = random.Random(3)
    for _ in range(6):
        low, high = sorted(rng.sample(stamps, 2))
        page = one.consumer.page(start_ts=low, end_ts=high, limit=PAGE)
        want = content(event for event in one.events if "commit_ts" in event and low < int(event["commit_ts"]) <= high)
        assert content(page.events) == want
        assert page.resolved_ts == high
