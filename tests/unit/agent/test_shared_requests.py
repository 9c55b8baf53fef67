"""Registrations that share a request_id: events find their region's, and nobody else's."""

from __future__ import annotations

import random

import numpy as np
import pytest

from support import cdcpb
from support.agent_bench import BASE, INITIALIZED, Bench, change, keys
from tistream_agent.core import kernels as k
from tistream_agent.core import steps
from tistream_agent.core.keys import Region, encoded_bound
from tistream_agent.core.received.requests import SentRequests

LEFT = Region(11, b"", encoded_bound(b"h"), 1, 4, 1)
MIDDLE = Region(13, encoded_bound(b"h"), encoded_bound(b"p"), 1, 4, 1)
RIGHT = Region(12, encoded_bound(b"p"), b"", 1, 4, 2)
REGIONS = [LEFT, MIDDLE, RIGHT]


def resolved(regions: list[int], request_id: int, ts: int) -> bytes:
    told = cdcpb.ChangeDataEvent()
    told.resolved_ts.regions.extend(regions)
    told.resolved_ts.ts, told.resolved_ts.request_id = ts, request_id
    return told.SerializeToString()


def test_registrations_of_one_call_share_a_request_at_each_store() -> None:
    requests = Bench().register(REGIONS)
    assert requests[11].request_id == requests[13].request_id != requests[12].request_id


def test_one_message_resolves_all_regions_of_a_request_and_each_ends_alone() -> None:
    bench = Bench()
    requests = bench.register(REGIONS)
    for request in requests.values():
        bench.receive(request, INITIALIZED)
    shared, stream = requests[11].request_id, requests[11].stream
    bench.step(steps.Received(stream, [resolved([11, 13], shared, BASE + 40)]))
    bench.receive(requests[11], error="epoch_not_match")
    bench.receive(requests[13], change(b"j", BASE + 50))
    bench.receive(requests[11], change(b"a", BASE + 51))  # late: the region has ended
    bench.run([], 4_000)
    assert [key for draft in bench.drafts for key in keys(draft)] == [b"j"]
    assert bench.agent.subscriptions.counts.late_events == 1
    again = bench.register(REGIONS)[11]
    assert again.request_id > shared
    assert again.checkpoint_ts == BASE + 40
    bench.receive(again, change(b"b", BASE + 60), INITIALIZED)
    bench.receive(requests[11], change(b"c", BASE + 61))  # of the request before
    bench.run([], 2_000)
    assert [key for draft in bench.drafts for key in keys(draft)] == [b"j", b"b"]


def test_an_event_of_another_stores_region_under_the_request_ends_the_stream() -> None:
    bench = Bench()
    requests = bench.register(REGIONS)
    said = resolved([11, 12], requests[11].request_id, BASE + 5)
    assert any(isinstance(one, steps.CloseStream) for one in bench.step(steps.Received(requests[11].stream, [said])))


def test_two_pieces_of_one_region_do_not_share_a_request() -> None:
    """TiKV would answer the second with duplicate_request."""
    bench = Bench()
    requests = bench.register(REGIONS)
    bench.receive(requests[11], INITIALIZED)
    bench.receive(requests[11], error="epoch_not_match")
    bench.receive(requests[13], error="epoch_not_match")
    # PD names a region on both sides of a hole.
    around = [
        Region(11, b"", encoded_bound(b"b"), 1, 5, 1),
        Region(14, encoded_bound(b"b"), encoded_bound(b"d"), 1, 6, 1),
        Region(11, b"", encoded_bound(b"h"), 1, 5, 1),
        Region(13, encoded_bound(b"h"), encoded_bound(b"p"), 1, 5, 1),
    ]
    before = len(bench.of(steps.Register))
    bench.run([*around, RIGHT], 500)
    sent = [(one.request_id, one.region_id) for one in bench.of(steps.Register)[before:]]
    assert sorted(region for _, region in sent) == [11, 11, 13, 14]
    assert len(set(sent)) == len(sent)


@pytest.mark.parametrize("seed", range(20))
def test_the_table_finds_what_a_dictionary_finds(seed: int) -> None:
    rng, table, truth = random.Random(seed), SentRequests(), {}
    number, known = 0, set()
    for _ in range(rng.randint(1, 40)):
        sent_as = number = number + rng.randint(1, 3)
        stream = rng.randint(1, 2)
        for region in rng.sample(range(1, 30), rng.randint(1, 12)):
            table.add(sent_as, region, stream, number)
            truth[sent_as, region] = stream, number
            known.add(number)
            number += 1
        if rng.random() < 0.4:
            known = set(rng.sample(sorted(known), rng.randint(0, len(known))))
            table.forget(len(known), np.array(sorted(known), np.int64))
            used = {request for (request, _), (_, one) in truth.items() if one in known}
            if len(table) < len(truth):
                truth = {key: found for key, found in truth.items() if key[0] in used}
        asked = [(rng.randint(0, number + 2), rng.randint(1, 32)) for _ in range(200)] + list(truth)
        items = np.zeros((k.ITEM_COLUMNS, len(asked)), np.int64)
        items[k.REQUEST], items[k.REGION] = np.array(asked).T
        for stream in (1, 2):
            found = table.numbers(items, stream).tolist()
            for (request, region), one in zip(asked, found, strict=True):
                streams = {its for (sent, _), (its, _) in truth.items() if sent == request}
                if streams != {stream}:
                    assert one == k.NO_REQUEST
                else:
                    assert one == truth.get((request, region), (0, k.OTHER_REGION))[1]
