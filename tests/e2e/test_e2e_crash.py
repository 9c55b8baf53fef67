"""kill -9 of each process at seeded random moments during the push: the same events, once."""

from __future__ import annotations

import random

import httpx
import pytest

from support import golden
from support.compare import shown, tenant_differences
from support.effort import FULL, cases
from support.platform import SERVICES, Platform
from support.pull import Refused
from support.waiting import eventually

VICTIMS = (*SERVICES, "jvm", "other")  # `other` is one of Spark's Python workers


@pytest.mark.parametrize("victims", cases([VICTIMS], [(victim,) * 3 for victim in VICTIMS]), ids="-".join)
def test_processes_killed_during_the_push_are_started_again_and_nothing_is_lost(
    mortal: Platform, victims: tuple[str, ...]
) -> None:
    rng = random.Random(f"kill {victims}")
    loaded = golden.load_as("everything" if FULL else "large", "9", f"kill-{victims[0]}-{victims[-1]}")
    golden.put(mortal.objects, loaded.schema_snap)
    consumer = mortal.create_for(loaded)
    moments = rng.sample(range(10, len(loaded.files)), len(victims))
    strikes = dict(zip(moments, rng.sample(victims, len(victims)), strict=True))

    def strike(number: int) -> None:
        if number in strikes:
            eventually(lambda: mortal.strike(strikes[number]))  # what was killed before may have taken it along

    golden.push(loaded.files, mortal.objects, pace=0.7, before_each=strike)
    eventually(lambda: _resolved(mortal, loaded))
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)


def _resolved(up: Platform, loaded: golden.GoldenSet) -> bool:
    """Asked of an API that comes and goes."""
    try:
        return int(up.consumer(loaded.tenant).status()["resolved_ts"]) >= loaded.end_ts
    except (Refused, OSError, httpx.TransportError):
        return False
