"""Framing puts the events of a partition into messages of open-protocol, in their order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tistream.schema.ddl_event import DdlEvent
from tistream_changefeed.core.outgoing import NOTHING, Outgoing
from tistream_changefeed.pipeline import Framing
from tistream_changefeed.sinks.kafka.feed_settings import parsed


def unframed(raw: bytes, head: int) -> list[bytes]:
    """The frames of a key (with a version of `head` bytes) or a value."""
    out, at = [], head
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 8], "big")
        out.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    return out


def test_events_of_each_partition_stay_in_order_and_are_all_there() -> None:
    rng = Random(4)
    for count in (1, 7, 200):
        places = [(rng.randrange(2), rng.randrange(3)) for _ in range(count)]
        keys = [b"k%d" % at for at in range(count)]
        values = [b"v%d" % at * rng.randrange(1, 9) for at in range(count)]
        part = Outgoing(
            ("a", "b"),
            np.array([topic for topic, _ in places], np.int64),
            np.array([number for _, number in places], np.int64),
            pa.array(keys, pa.large_binary()),
            pa.array(values, pa.large_binary()),
            np.arange(count),
        )
        found: dict[tuple[str, int], list[tuple[bytes, bytes]]] = {}
        sent = list(Framing(4, 10_000).frame(part).each())
        for one in sent:
            assert one.key is not None
            assert one.value is not None
            events = list(zip(unframed(one.key, 8), unframed(one.value, 0), strict=True))
            assert 1 <= len(events) <= 4
            found.setdefault((one.topic, one.partition), []).extend(events)
        expected: dict[tuple[str, int], list[tuple[bytes, bytes]]] = {}
        for (topic, number), key, value in zip(places, keys, values, strict=True):
            expected.setdefault(("ab"[topic], number), []).append((key, value))
        assert found == expected
        assert count < 100 or len(sent) < count / 2


def test_nothing_is_framed_as_nothing() -> None:
    assert len(Framing(16, 1_000).frame(NOTHING)) == 0


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json", "simple"])
def test_a_ddl_without_a_statement_has_no_message(protocol: str) -> None:
    """TiDB notes by such a job that the replicas of a table in TiFlash are ready."""
    pipeline = parsed(f"kafka://h:1/t?protocol={protocol}", {}).pipeline()
    noted = DdlEvent(9, 8, 1, "d", "t", "", "update tiflash replica status", 5, (("d", "t"),))
    stated = replace(noted, query="ALTER TABLE t SET TIFLASH REPLICA 1", action="set tiflash replica")
    for event, count in ((noted, 0), (stated, 1)):
        assert len(pipeline.concerned(event)) == count
        assert len(pipeline.ddl(event, lambda *_: None, lambda _: 1)) == count
