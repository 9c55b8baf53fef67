"""The emulated cluster, on a virtual clock, tells a client every change of a recorded history."""

from __future__ import annotations

import pytest

from support.golden_streams import FOLDER, SETS, SPANS, expected
from support.puller import Puller
from support.stream_play import play
from tistream_upstream.emulator.golden import GoldenSet
from tistream_upstream.emulator.model.upstream import Upstream


def puller_of(name: str, golden: GoldenSet, upstream: Upstream, **options: object) -> Puller:
    base_ts = golden.meta["base_ts"]
    return Puller(
        lambda start, end: upstream.pd_regions.scan(start, end, 1_024),
        golden.meta["cluster_id"],
        [(start, end, base_ts) for start, end in SPANS[name]],
        kv_api=1 if name == "raw" else 0,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", SETS)
def test_a_client_receives_every_recorded_change(name: str) -> None:
    golden = GoldenSet.read(FOLDER / name)
    upstream = golden.upstream(seed=3)
    puller = puller_of(name, golden, upstream)
    play(upstream, puller, golden.end_ts, golden.end_us)
    assert puller.changes == expected(name)
    assert {"not_leader", "epoch_not_match", "region_not_found", "congested", "server_is_busy"} <= set(puller.errors)
    assert upstream.counters.scans <= upstream.counters.registrations
    assert upstream.counters.as_json()["errors"]["congested"] == puller.errors["congested"]


def test_a_client_of_the_first_protocol_receives_every_change_of_an_old_store() -> None:
    golden = GoldenSet.read(FOLDER / "everything")
    upstream = golden.upstream(seed=4, version="6.5.3")
    puller = puller_of("everything", golden, upstream)
    puller.whole = (b"m", b"u")
    puller.pieces = [(b"m", b"u", golden.meta["base_ts"])]  # such a stream has one subscription of a region
    play(upstream, puller, golden.end_ts, golden.end_us, multiplexing=False)
    assert puller.changes == expected("everything")
