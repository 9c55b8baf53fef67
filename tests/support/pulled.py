"""A tenant that is complete, and one uninterrupted pull of it."""

from __future__ import annotations

from dataclasses import dataclass

from support import golden
from support.compare import content
from support.golden import GoldenSet
from support.platform import Platform
from support.pull import Consumer, Event


@dataclass
class Pulled:
    """A golden set as a tenant, and its events."""

    golden: GoldenSet
    consumer: Consumer
    events: list[Event]

    @property
    def all(self) -> list[str]:
        """The rows and DDLs as text."""
        return content(self.events)


def pulled_whole(up: Platform, name: str, tenant_id: str) -> Pulled:
    """Push all files of a set at once, as a tenant of its own, and pull everything."""
    loaded = golden.load_as(name, "8", tenant_id)
    golden.push(loaded.deliveries, up.objects)
    consumer = up.create_for(loaded)
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=200_000)
    return Pulled(loaded, consumer, events)
