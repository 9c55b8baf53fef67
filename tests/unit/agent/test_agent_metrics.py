"""What the agent's metrics count, under their published names and labels."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from support.agent_bench import BASE, INITIALIZED, Bench, change
from tistream_agent.core import steps
from tistream_agent.core.received.counts import Counts
from tistream_agent.metrics import AgentMetrics
from tistream_agent.status import TerritoryStatus

NAMES = {  # with their labels
    "subscriptions": {"state"},
    "registrations_total": {"outcome"},
    "errors_total": {"kind"},
    "entries_total": {"type"},
    "received_bytes_total": set(),
    "files_total": set(),
    "put_seconds_count": set(),
    "buffer_bytes": set(),
    "reading_stopped_seconds_total": set(),
    "resolved_lag_seconds": set(),
    "scan_rows_total": set(),
    "gc_hold_lag_seconds": set(),
    "fenced": set(),
    "pd_calls_total": {"rpc"},
    "clock_regressions_total": set(),
}


class Counted:
    """Metrics of an agent whose answers are given by hand."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.registry, self.before = bench, CollectorRegistry(), Counts()
        self.metrics = AgentMetrics(self.registry)

    def look(self) -> None:
        """As the thread of a territory does, now and then."""
        counts = self.bench.agent.subscriptions.counts.copy()
        self.metrics.count(counts, self.before)
        self.before = counts

    def values(self, name: str, label: str) -> Mapping[str, float]:
        """Those that are not 0, by label."""
        self.look()
        samples = [one for family in self.registry.collect() for one in family.samples]
        return {
            one.labels[label]: one.value for one in samples if one.name == f"tistream_agent_{name}" and one.value != 0
        }

    def value(self, name: str) -> float | None:
        self.look()
        return self.registry.get_sample_value(f"tistream_agent_{name}")


def test_the_metrics_have_the_names_and_labels_of_the_design() -> None:
    counted = Counted(Bench())
    counted.metrics.pd_calls.labels("Tso").inc()
    counted.metrics.measure([], 0)
    found = {one.name: set(one.labels) for family in counted.registry.collect() for one in family.samples}
    assert {name: found.get(f"tistream_agent_{name}") for name in NAMES} == NAMES


def test_rows_are_counted_by_type_and_those_before_the_end_of_a_scan_once_more() -> None:
    counted = Counted(bench := Bench())
    request = bench.register()[11]
    bench.receive(request, change(b"a", BASE + 10), {"type": 3, "key": b"b", "start_ts": BASE + 3}, INITIALIZED)
    assert counted.values("entries_total", "type") == {"committed": 1, "rollback": 1}
    prewrite = {"type": 1, "op_type": 1, "key": b"c", "value": b"v", "start_ts": BASE + 20}
    commit = {"type": 2, "op_type": 1, "key": b"c", "start_ts": BASE + 20, "commit_ts": BASE + 30}
    bench.receive(request, prewrite)
    bench.receive(request, commit, change(b"z", BASE + 40))
    assert counted.values("entries_total", "type") == {"committed": 1, "rollback": 1, "prewrite": 1, "commit": 1}
    assert counted.value("scan_rows_total") == 2
    assert counted.values("dropped_total", "reason") == {"rows_outside": 1}


def test_registrations_are_counted_by_how_they_end_and_errors_by_kind() -> None:
    counted = Counted(bench := Bench())
    requests = bench.register()
    bench.receive(requests[11], error="server_is_busy")
    again = bench.register()[11]
    bench.receive(again, INITIALIZED)
    bench.receive(again, error="epoch_not_match")  # after its scan: an error, but no registration
    bench.step(steps.StreamEnded(requests[12].stream, "UNAVAILABLE"))
    assert counted.values("registrations_total", "outcome") == {"refused": 1, "initialized": 1, "lost": 1}
    assert counted.values("errors_total", "kind") == {"server_is_busy": 1, "epoch_not_match": 1}


def test_a_scan_that_ends_and_is_refused_in_one_batch_is_one_initialized_registration() -> None:
    counted = Counted(bench := Bench())
    request = bench.register()[11]
    first, second = Bench.message(request, INITIALIZED), Bench.message(request, error="not_leader")
    bench.step(steps.Received(request.stream, [first, second]))
    assert counted.values("registrations_total", "outcome") == {"initialized": 1}


def test_a_stream_that_cannot_be_used_is_an_error_of_its_own_kind() -> None:
    counted = Counted(bench := Bench())
    bench.step(steps.Received(bench.register()[11].stream, [b"\xff"]))
    assert counted.values("errors_total", "kind") == {"unusable_stream": 1}


def test_key_ranges_are_counted_by_state_over_all_territories() -> None:
    bench = Bench()
    bench.step(steps.Tick())
    assert bench.agent.pieces_by_state() == {"waiting_for_pd": 1, "to_register": 0, "scanning": 0, "live": 0}
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    by_state = bench.agent.pieces_by_state()
    assert by_state == {"waiting_for_pd": 0, "to_register": 0, "scanning": 1, "live": 1}
    counted = Counted(bench)
    one = TerritoryStatus(
        cluster_id="7", tenant_id="acme", territory="5", pd_cluster_id="1", epoch=1, state="running", by_state=by_state
    )
    counted.metrics.measure([one, one], 0)
    assert counted.values("subscriptions", "state") == {"scanning": 2, "live": 2}
