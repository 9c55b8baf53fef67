"""Events that a person has named are left out, with a letter each, and nothing else is (invariant 44)."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.feed_batches import golden_window
from support.pull_world import golden_world
from tistream.read.cursor import Position, Scope
from tistream.read.scan import Scan
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.core.segments import Segment, segments
from tistream_changefeed.dead_letters.letter import of_ddl, of_row
from tistream_changefeed.dead_letters.skips import SkippedEvents
from tistream_changefeed.hold.sink import DeadLetter, Pipeline
from tistream_changefeed.rows.split import kinds
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.table_errors.table_failed import TableFailed

URI = "kafka://h:1/t?protocol=open-protocol&max-batch-size=1"
SMALL = f"{URI}&max-message-bytes=1700"
REASON = "too large for us"


@functools.cache
def history() -> tuple[Segment, ...]:
    """The golden set, read in this process."""
    world, splitting = golden_world("everything"), parsed(URI, {}).pipeline().splitting
    at, found = Position(world.snapshot_ts), []
    scan = Scan(world.source, Scope(world.tenant), at, world.end_ts, world.budget, numbered=True, moving=splitting)
    for batch in scan.batches():
        for segment in segments(batch.events, at, batch.through):
            found.append(segment)
            at = segment.rows_end
    return tuple(found)


def partitions(_: str) -> int:
    return 3


def sent(pipeline: Pipeline) -> tuple[list[tuple[int, bytes | None, bytes | None]], list[DeadLetter]]:
    """Messages of all rows, with their commit_ts, and the letters."""
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    letters: list[DeadLetter] = []
    for segment in history():
        encoded = pipeline.rows(segment.rows, partitions)
        each = zip(encoded.messages.commit_ts.tolist(), encoded.messages.each(), strict=True)
        rows += [(ts, one.key, one.value) for ts, one in each]
        letters += encoded.letters
    return rows, letters


@functools.cache
def skipped_by_name(uri: str) -> tuple[Skip, ...]:
    """What a person does with a feed that stops: skip what the error names, and resume."""
    skips: list[Skip] = []
    pipeline = parsed(uri, {}).pipeline()
    for segment in history():
        while (skip := named_by(pipeline, segment)) is not None:
            assert skip not in skips, "it was named, and is met again"
            skips.append(skip)
            pipeline = parsed(uri, {}, skips).pipeline()
    return tuple(skips)


def named_by(pipeline: Pipeline, segment: Segment) -> Skip | None:
    """The event that the error of a segment names; None: all of it is sent."""
    try:
        pipeline.rows(segment.rows, partitions)
    except TableFailed as error:
        return Skip(commit_ts=error.commit_ts, table=error.table, key=(error.key or b"").hex(), reason=REASON)
    return None


def test_poison_rows_are_skipped_by_the_names_in_the_errors_and_nothing_else_is() -> None:
    skips = skipped_by_name(SMALL)
    assert len(skips) > 2
    kept, letters = sent(parsed(SMALL, {}, skips).pipeline())
    every, none = sent(parsed(URI, {}).pipeline())
    assert none == []
    there = set(kept)
    left_out = [one for one in every if one not in there]
    assert kept == [one for one in every if one in there], "what is sent is in its order"
    assert len(left_out) == len(letters) == len(every) - len(kept)
    assert {ts for ts, *_ in left_out} == {one.commit_ts for one in skips}
    assert sorted(ts for ts, *_ in left_out) == [one.commit_ts for one in letters]
    named = {(one.commit_ts, one.key) for one in skips}
    for letter in letters:
        value = json.loads(letter.sent.value or b"")
        assert (int(value["commit_ts"]), value["key"]) in named
        assert (letter.sent.topic, letter.sent.partition) == ("t-dead-letter", 0)
        assert value["reason"] == "too large for us"
        assert len(letter.sent.value or b"") < 1_700


def test_a_table_that_was_chosen_for_it_sends_the_same_rows_to_the_dead_letters_by_itself() -> None:
    skips = skipped_by_name(SMALL)
    by_name, named = sent(parsed(SMALL, {}, skips).pipeline())
    by_itself, letters = sent(parsed(SMALL, dead_letters("*.*")).pipeline())
    assert by_itself == by_name
    assert [(one.commit_ts, without_reason(one)) for one in letters] == [
        (one.commit_ts, without_reason(one)) for one in named
    ]
    assert all(b"larger than max-message-bytes" in (one.sent.value or b"") for one in letters)


def test_the_choice_of_one_table_is_not_that_of_another() -> None:
    poisoned = "types.everything"
    first = {"matcher": [poisoned], "on-row-error": "stop"}
    everything = {"matcher": ["*.*"], "on-row-error": "dead-letter"}
    for document in (dead_letters(f"{poisoned}x"), {"tistream": {"tables": [first, everything]}}):
        with pytest.raises(TableFailed) as found:
            sent(parsed(SMALL, document).pipeline())
        assert found.value.table == poisoned


def dead_letters(matcher: str) -> dict[str, Any]:
    """A configuration in which these tables send to the dead letters by themselves."""
    return {"tistream": {"tables": [{"matcher": [matcher], "on-row-error": "dead-letter"}]}}


def without_reason(letter: DeadLetter) -> dict[str, Any]:
    """The letter's message, but for the reason."""
    value: dict[str, Any] = json.loads(letter.sent.value or b"")
    return value | {"reason": None}


def test_another_table_time_or_key_is_not_left_out() -> None:
    [first, *_] = skipped_by_name(SMALL)
    near: Sequence[Skip] = [
        first.model_copy(update={"commit_ts": first.commit_ts + 1}),
        first.model_copy(update={"table": f"{first.table}x"}),
        first.model_copy(update={"key": f"{first.key}00"}),
        first.model_copy(update={"key": None, "ddl_job": 1}),
    ]
    with pytest.raises(TableFailed, match=f"commit_ts {first.commit_ts}"):
        sent(parsed(SMALL, {}, near).pipeline())
    folded = first.model_copy(update={"table": first.table.upper()})
    with pytest.raises(TableFailed) as found:
        sent(parsed(SMALL, {}, [folded]).pipeline())
    assert found.value.commit_ts > first.commit_ts or (found.value.key or b"").hex() != first.key


def test_a_ddl_is_left_out_by_its_job() -> None:
    ddls = [one.ddl for one in history() if one.ddl is not None]
    chosen = ddls[len(ddls) // 2]
    skip = Skip(
        commit_ts=chosen.commit_ts, table=f"{chosen.database}.{chosen.table}", ddl_job=chosen.job_id, reason="r"
    )
    pipeline, plain = parsed(URI, {}, [skip]).pipeline(), parsed(URI, {}).pipeline()
    table_at = golden_world("everything").source.table
    for ddl in ddls:
        marks = pipeline.ddl(ddl, table_at, partitions)
        assert pipeline.skipped(marks) == (1 if ddl is chosen else 0)
        if ddl is chosen:
            value = json.loads(marks[0].value or b"")
            assert (value["ddl_job"], value["query"]) == (str(chosen.job_id), chosen.query)
        else:
            assert marks == plain.ddl(ddl, table_at, partitions)


def test_no_resolved_message_goes_to_the_dead_letters() -> None:
    marks = parsed(URI, {}).pipeline().resolved(7, {"t": 2, "t-dead-letter": 3})
    assert {one.topic for one in marks} == {"t"}


@pytest.mark.parametrize("bytes_max", [800, 4_000, 65_536])
def test_a_letter_is_never_larger_than_a_message_may_be(bytes_max: int) -> None:
    longest = "\U0001f4a9\x00" * 250
    for batch in golden_window().batches[:60]:
        skip = Skip(commit_ts=1, table=longest[:100], key="00", reason=longest)
        letter = of_row(batch, 0, skip, "d", bytes_max)
        assert letter.value is not None
        assert json.loads(letter.value)["version"] == 1
        assert len(letter.value) <= bytes_max
    ddl = replace(golden_window().ddl[0], query="select '" + longest * 300)
    value = of_ddl(ddl, Skip(commit_ts=1, table="a.b", ddl_job=1, reason="r"), "d", bytes_max).value
    assert value is not None
    assert len(value) <= bytes_max
    assert json.loads(value)["truncated"] is True


def test_skips_of_a_batch_are_found_once_each() -> None:
    batch = next(one for one in golden_window().batches if len(one) > 3)
    keys = [batch.raw[at].as_py().hex() for at in range(3)]
    table = ".".join(batch.version.name)
    named = [Skip(commit_ts=int(batch.commit_ts[at]), table=table, key=keys[at], reason="r") for at in (2, 0, 2)]
    found = SkippedEvents(named, "d", 1_000).rows(batch)
    same = np.flatnonzero([
        (int(ts), raw.as_py().hex()) in {(one.commit_ts, one.key) for one in named}
        for ts, raw in zip(batch.commit_ts, batch.raw, strict=True)
    ])  # fmt: skip
    assert [at for at, _ in found] == same.tolist()


class Counted(np.ndarray[Any, Any]):
    """An array, and the number of elements that were compared."""

    compared = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        Counted.compared += max(np.size(one) for one in inputs)
        plain = [one.view(np.ndarray) if isinstance(one, Counted) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **more)


def test_the_work_for_skips_grows_with_their_number_and_not_with_its_square() -> None:
    batch = max(golden_window().batches, key=len)
    name = ".".join(batch.version.name)
    at = np.arange(len(batch))
    named = [
        Skip(commit_ts=int(ts), table=name, key=raw.as_py().hex(), reason="r")
        for ts, raw in zip(batch.commit_ts, batch.raw, strict=True)
    ]
    counted = replace(batch, commit_ts=batch.commit_ts.view(Counted))
    Counted.compared = 0
    assert (counted.commit_ts > 0).all()
    assert Counted.compared >= len(batch)  # it counts
    assert [place for place, _ in SkippedEvents(named, "d", 1_000).rows(counted)] == at.tolist()
    assert len(batch) > 50
    assert Counted.compared < 20 * len(batch)


def test_the_work_for_letters_grows_with_their_number_and_not_with_its_square() -> None:
    batch = max(golden_window().batches, key=len)
    counted = replace(batch, new_at=batch.new_at.view(Counted), old_at=batch.old_at.view(Counted))
    skip, ops = Skip(commit_ts=1, table="a.b", key="00", reason="r"), ("delete", "update", "insert")
    Counted.compared = 0
    told = [json.loads(of_row(counted, at, skip, "d", 1 << 20).value or b"")["op"] for at in range(len(batch))]
    assert Counted.compared < 20 * len(batch)
    assert told == [ops[kind] for kind in kinds(batch).tolist()]
    assert len(batch) > 50
