"""The golden sets, pushed at once and at the pace in which they were made, cut into 4 ranges (in the soak into 1, 16
and 64 too): what is pulled, in pages or as a stream while files arrive, is what TiDB said, completely."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from support import golden, platform
from support.compare import concerns, content, shown, tenant_differences
from support.effort import cases
from support.golden import GoldenSet
from support.platform import Platform
from support.pull import Consumer, Event, Refused
from support.pulled import Pulled, pulled_whole
from support.waiting import PATIENCE_S

PAGE = 200_000
NARROW = [("shop",), ("shop", "busy")]  # what narrower streams follow


@dataclass
class Stream:
    """A stream that was followed from the tenant's beginning, in a thread of its own."""

    consumer: Consumer
    golden: GoldenSet
    scope: tuple[str, ...] = ()
    events: list[Event] = field(default_factory=list)
    failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._follow()
        except BaseException as error:
            self.failure = error

    def _follow(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self.consumer.follow(*self.scope, until_ts=self.golden.end_ts, start_ts=self.golden.snapshot_ts)
                self.events.extend(found)
                return
            except Refused as refused:  # 404: nothing bears the name yet; 503: the tenant is not known yet
                if refused.status not in ({404, 503} if self.scope else {503}) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@dataclass
class Outcome:
    """What one platform made of the sets."""

    at_once: dict[str, Pulled]
    streams: list[Stream]


ONE_SET = cases(["everything"], ["large"])  # for what is the API's alone
SHARED = {4: "up", 16: "mortal"}  # ranges, and the fixture that has them
AT_ONCE = {"everything": "whole", "large": "whole_large"}  # the fixtures of `up` with the sets pushed at once


@pytest.fixture(scope="module")
def of_ranges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[pytest.FixtureRequest], Outcome]]:
    """The outcome for a number of ranges, which a fixture has as its parameter."""
    made: dict[int, Outcome] = {}
    with contextlib.ExitStack() as own:

        def of(request: pytest.FixtureRequest) -> Outcome:
            if request.param not in made:
                if request.param in SHARED:
                    up = request.getfixturevalue(SHARED[request.param])
                else:
                    directory = tmp_path_factory.mktemp("up")
                    up = own.enter_context(platform.running(directory, ranges=request.param))
                if request.param == 4:
                    at_once = {name: request.getfixturevalue(fixture) for name, fixture in AT_ONCE.items()}
                else:
                    at_once = {name: pulled_whole(up, name, f"{name}-at-once") for name in golden.NAMES}
                made[request.param] = Outcome(at_once, _paced(up))
            return made[request.param]

        yield of


@pytest.fixture(scope="module", params=cases([4], [16, 1, 64]), ids="{}-ranges".format)
def outcome(request: pytest.FixtureRequest, of_ranges: Callable[[pytest.FixtureRequest], Outcome]) -> Outcome:
    return of_ranges(request)


@pytest.fixture(scope="module", params=cases([4], [16, 1, 64]), ids="{}-ranges".format)
def paged(request: pytest.FixtureRequest, of_ranges: Callable[[pytest.FixtureRequest], Outcome]) -> Outcome:
    """For what cuts an answer into parts, which is the API's alone: one number of ranges is enough."""
    return of_ranges(request)


def _paced(up: Platform) -> list[Stream]:
    streams: list[Stream] = []
    pushers = []
    for name in golden.NAMES:
        loaded = golden.load_as(name, "8", f"{name}-paced")
        golden.put(up.objects, loaded.schema_snap)
        up.create_for(loaded)
        for scope in [(), *NARROW] if name == "everything" else [()]:
            streams.append(Stream(up.consumer(loaded.tenant), loaded, scope))
        args = (loaded.files, up.objects)
        pushers.append(threading.Thread(target=golden.push, args=args, kwargs={"url": up.url, "pace": 1.0}))
    threads = [*pushers, *(threading.Thread(target=stream.run, daemon=True) for stream in streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return streams


def test_streams_followed_while_files_arrived_are_what_tidb_said(outcome: Outcome) -> None:
    for stream in outcome.streams:
        assert stream.failure is None, (stream.scope, stream.failure)
    whole = {stream.golden.name: stream.events for stream in outcome.streams if not stream.scope}
    for stream in outcome.streams:
        if stream.scope:
            want = content(event for event in whole[stream.golden.name] if concerns(event, *stream.scope))
            assert content(stream.events) == want, stream.scope
        else:
            problems = tenant_differences(stream.golden, stream.events)
            assert not problems, shown(problems)


@pytest.mark.parametrize("name", golden.NAMES)
def test_pull_tenant_is_what_tidb_said(outcome: Outcome, name: str) -> None:
    one = outcome.at_once[name]
    problems = tenant_differences(one.golden, one.events)
    assert not problems, shown(problems)


@pytest.mark.parametrize("name", ONE_SET)
def test_small_pages_and_every_cursor_give_the_same_events(paged: Outcome, name: str) -> None:
    one = paged.at_once[name]
    rng = random.Random(7)
    cursors: list[tuple[int, str]] = []
    got: list[Event] = []
    query: dict[str, int] = {"start_ts": one.golden.snapshot_ts, "limit": 97}
    for page in one.consumer.pages(until_ts=one.golden.end_ts, query=query):
        got += page.events
        cursors.append((len(got), page.cursor))
    assert content(got) == one.all
    for seen, cursor in rng.sample(cursors, min(8, len(cursors))):
        rest: list[Event] = []
        for page in one.consumer.pages(until_ts=one.golden.end_ts, query={"cursor": cursor, "limit": PAGE}):
            rest += page.events
        assert content(rest) == one.all[seen:]
