"""Whether a node is there."""

from __future__ import annotations

from tistream_meta.decide.liveness import Liveness, Timings, liveness

TIMINGS = Timings(suspect_ms=100, lost_ms=300)


def test_silence_makes_a_node_suspect_and_then_lost():
    states = [liveness(1000, 0, 1000 + silence, TIMINGS) for silence in (0, 99, 100, 299, 300)]
    alive, suspect, lost = Liveness.ALIVE, Liveness.SUSPECT, Liveness.LOST
    assert states == [alive, alive, suspect, suspect, lost]


def test_a_new_owner_counts_silence_from_its_own_beginning():
    assert liveness(None, 5000, 5000, TIMINGS) is Liveness.ALIVE
    assert liveness(1, 5000, 5099, TIMINGS) is Liveness.ALIVE
    assert liveness(None, 5000, 5300, TIMINGS) is Liveness.LOST
