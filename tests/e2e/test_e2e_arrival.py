"""However the files arrive, the events are the same: a few ways at once, on real files. Lower tiers try any order of
arrival (tests/simulation), soak/test_e2e_arrivals.py each way by itself."""

from __future__ import annotations

import threading

from support import golden
from support.compare import shown, tenant_differences
from support.platform import Platform


def test_files_in_any_order_in_halves_and_before_their_tenant_and_its_snapshot(up: Platform) -> None:
    """Half of the files come in any order, before the tenant and its schema snapshot. The others are of an agent
    without atomic uploads: every tenth is first there in part. All are announced before they exist, and again."""
    loaded = golden.load_as("large", "9", "arriving")
    half = len(loaded.files) // 2
    golden.push(golden.shuffled(loaded.files[:half], seed=4), up.objects)
    consumer = up.create_for(loaded)
    golden.put(up.objects, loaded.schema_snap)
    consumer.wait_for(loaded.snapshot_ts)

    def chatter() -> None:
        for file in (*loaded.files, *reversed(loaded.files)):
            golden.announce(up.url, file)

    thread = threading.Thread(target=chatter)
    thread.start()
    for number, file in enumerate(loaded.files[half:]):
        path = up.objects / file.key
        path.parent.mkdir(parents=True, exist_ok=True)
        if number % 10 == 5:
            path.write_bytes(file.data[: len(file.data) // 2])
            golden.announce(up.url, file)
            threading.Event().wait(0.3)
        path.write_bytes(file.data)
    thread.join()
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
