"""A table whose event cannot be sent stops by name, and the others go on; after a person has acted it catches up, and
each event is there once and in the order of its table (docs/changefeeds.md, "Changing a feed")."""

from __future__ import annotations

import functools
import json
import re

import pytest

from support.effort import cases
from support.model_feed import FEED, Run, by_table, concerned, refusing
from support.model_kafka import Faults
from support.pull_world import golden_world
from support.sim.changefeed_judge import undisturbed_set
from tistream.model.ts import Window
from tistream.read.cursor import Scope
from tistream.schema.visible import Name
from tistream.wire.bulk.changefeeds import Skip

UNFIT = {"sink": {"dispatchers": [{"matcher": ["*.*"], "partition": "columns", "columns": ["nope"]}]}}
POISONED = ("types", "everything")


@functools.cache
def wanted() -> dict[Name, list[tuple[int, bytes | None]]]:
    """What the tables of an undisturbed feed have."""
    found, _ = undisturbed_set("everything", FEED)
    return by_table([(json.loads((one.key or b"")[16:]), one.value) for one in found[0]])


def named(reason: str) -> Skip:
    """The event that a reason names."""
    found = re.match(r"table (\S+), commit_ts (\d+), key ([0-9a-f]+): ", reason)
    assert found is not None, reason
    return Skip(commit_ts=int(found[2]), table=found[1], key=found[3], reason="too large for us")


def test_a_table_stops_by_name_and_the_others_go_on() -> None:
    run = Run()
    holder = run.settle()
    report, every, there = holder.report(), wanted(), by_table(run.messages())
    [stopped] = report.stopped
    poison = named(stopped.reason)
    assert (stopped.database, stopped.table, stopped.left) == (*POISONED, False)
    assert [(one.stage, one.object) for one in report.held_by] == [("encode", ".".join(POISONED))]
    assert int(stopped.checkpoint_ts) == poison.commit_ts - 1 == report.checkpoint_ts
    assert (report.phase, report.skipped) == ("running", 0)
    assert {name: found for name, found in there.items() if name != POISONED} == {
        name: found for name, found in every.items() if name != POISONED
    }
    assert there[POISONED] == [one for one in every[POISONED] if one[0] < poison.commit_ts]
    assert run.check_resolved() < poison.commit_ts
    seen = len(run.messages())
    again = run.settle().report()
    assert (again.stopped, again.checkpoint_ts) == (report.stopped, report.checkpoint_ts), "a new holder says the same"
    assert len(run.messages()) == seen


@pytest.mark.parametrize("seed", cases([1], [0]))  # 0: without faults
def test_skips_by_name_release_the_table_and_nothing_is_lost_or_repeated(seed: int) -> None:
    run = Run(seed, Faults(lost=0.01, unanswered=0.01, refused=0.01, doubtful=0.02) if seed else Faults())
    holder = run.settle(deaths=0.1 if seed else 0.0)
    while holder.shard.phase != "finished":
        [stopped] = holder.report().stopped
        run.changed(skip=named(stopped.reason))
        holder = run.settle(deaths=0.1 if seed else 0.0)
    assert len(run.skips) > 2
    report, every, there = holder.report(), wanted(), by_table(run.messages())
    left_out = {one.commit_ts for one in run.skips}
    kept = [one for one in every[POISONED] if one in there[POISONED]]
    assert there[POISONED] == kept, "in order, each once"
    assert {ts for ts, _ in every[POISONED]} - {ts for ts, _ in kept} <= left_out
    assert len(every[POISONED]) - len(kept) == report.skipped
    assert {**there, POISONED: None} == {**every, POISONED: None}
    assert (report.stopped, report.checkpoint_ts, run.check_resolved()) == ([], run.world.end_ts, run.world.end_ts)


@pytest.mark.parametrize("seed", cases([1], [0]))  # 0: without faults
def test_tables_that_a_rule_does_not_fit_wait_with_their_ddls_until_the_rule_is_changed(seed: int) -> None:
    faults = Faults(lost=0.01, unanswered=0.01, refused=0.01, doubtful=0.02) if seed else Faults()
    run = Run(seed, faults, FEED.uri, UNFIT)
    holder = run.settle(deaths=0.1 if seed else 0.0)
    stopped, every = holder.report().stopped, wanted()
    assert any("waits for" in one.reason for one in stopped), "a DDL waits for its table"
    there = by_table(run.messages())
    assert 0 < sum(map(len, there.values())) < sum(map(len, every.values()))
    assert run.check_resolved() <= min(int(one.checkpoint_ts) for one in stopped)
    run.changed(document={})
    holder = run.settle(deaths=0.1 if seed else 0.0)
    assert holder.shard.phase == "finished"
    assert by_table(run.messages()) == every
    assert run.check_resolved() == run.world.end_ts


def test_a_table_that_is_left_holds_nothing_and_is_told() -> None:
    document = {"tistream": {"tables": [{"matcher": [".".join(POISONED)], "on-table-error": "leave-table"}]}}
    run = Run(document=document)
    report = run.settle().report()
    [stopped] = report.stopped
    assert ((stopped.database, stopped.table), stopped.left) == (POISONED, True)
    assert (report.phase, report.held_by, report.checkpoint_ts) == ("finished", [], run.world.end_ts)
    assert run.check_resolved() == run.world.end_ts
    there, every = by_table(run.messages()), wanted()
    assert {**there, POISONED: None} == {**every, POISONED: None}
    assert run.settle().report().stopped == report.stopped, "a new holder leaves it too"


def test_a_refused_ddl_of_a_table_that_is_left_is_left_out_and_the_others_go_on() -> None:
    world, every = golden_world("everything"), wanted()
    found = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    ddl = next(one for one in found if one.action == "add column" and len(concerned(one)) == 1)
    (name,) = concerned(ddl)
    run = Run(uri=FEED.uri, document={"tistream": {"on-table-error": "leave-table"}}, sink=refusing(ddl))
    report = run.settle().report()
    [stopped] = report.stopped
    assert ((stopped.database, stopped.table), stopped.reason, stopped.left) == (name, "it is refused", True)
    assert (report.phase, report.held_by, report.checkpoint_ts) == ("finished", [], run.world.end_ts)
    there = by_table(run.messages())
    assert {**there, name: None} == {**every, name: None}
    assert ddl.commit_ts not in [ts for ts, _ in there[name]]
    assert there[name] == [one for one in every[name] if one in there[name]]


@pytest.mark.parametrize("own", [True, False], ids=["of the table", "of the feed"])
def test_a_feed_that_is_to_stop_stops(own: bool) -> None:
    document = {"tistream": {"on-table-error": "stop-feed"}}
    if own:
        document = {"tistream": {"tables": [{"matcher": ["types.*"], "on-table-error": "stop-feed"}]}}
    report = Run(document=document).settle().report()
    assert report.phase == "failed"
    assert [one.object for one in report.held_by] == [".".join(POISONED)]
    assert "skip the event by name" in (report.error or "")
