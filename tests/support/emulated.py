"""The emulated cluster of a recorded change history, served to an agent or to `connect` of a test."""

from __future__ import annotations

from support.ahead_clock import AheadClock
from support.certificates import Certificates
from support.golden_streams import FOLDER, SCHEMA
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream_upstream.emulator import servers
from tistream_upstream.emulator.golden import GoldenSet

RECORD_MS = 70_000  # a record of seven seconds at a tenth of its speed


class EmulatedTikv:
    """PD and three stores that play a set from the first registration on, with all that happened to its regions.

    Args:
        speed: seconds of the recorded history in one second.
        version: of all stores, in place of the recorded one.
        collected_ts: GC has removed what is older; 0: nothing.
    """

    def __init__(
        self,
        name: str = "everything",
        speed: float = 1.0,
        tls: Certificates | None = None,
        version: str = "",
        collected_ts: int = 0,
    ) -> None:
        self.recorded = GoldenSet.read(FOLDER / name)
        self.upstream = self.recorded.upstream(schema=SCHEMA, version=version)
        if collected_ts:
            self.upstream.collect(collected_ts)
        files = None if tls is None else servers.Certificates(tls.authority.file, tls.cert_file, tls.key_file)
        self._clock = AheadClock()
        self._served = servers.EmulatedCluster(self.upstream, self._clock, speed, held=True, certificates=files)

    def start(self) -> EmulatedTikv:
        """Begin to serve. Its time stands until a client registers."""
        self._served.start()
        return self

    def play_out(self) -> None:
        """What is left of the record happens at once."""
        self._clock.advance(RECORD_MS)

    def collect(self, ts: int) -> None:
        """All holds on garbage collection end, as after a day, and what is older than `ts` is removed."""
        with self._served.shared.changed:
            self.upstream.gc.holds.clear()
            self.upstream.collect(ts)

    def stop(self) -> None:
        """End all streams and servers."""
        self._served.stop()

    @property
    def address(self) -> str:
        """PD's host and port."""
        return self._served.pd_address

    @property
    def cluster_id(self) -> int:
        """The id that PD states."""
        return self.upstream.config.cluster_id

    @property
    def registrations(self) -> int:
        """All that clients have registered so far, those that were refused too."""
        return self.upstream.counters.registrations

    @property
    def holds(self) -> dict[str, int]:
        """The ts of each hold on garbage collection."""
        with self._served.shared.changed:
            return {name: hold.ts for name, hold in self.upstream.gc.holds.items()}

    def held_after(self, seconds: int) -> dict[str, int]:
        """The ts of each hold on garbage collection that is left after so many seconds, if no process renews one."""
        with self._served.shared.changed:
            ends_ms = self.upstream.now_ms + seconds * 1_000
            return {name: hold.ts for name, hold in self.upstream.gc.holds.items() if hold.ends_ms > ends_ms}

    def subscribed(self) -> list[cdcpb.ChangeDataRequest]:
        """The requests of all subscriptions that exist now."""
        with self._served.shared.changed:
            feeds = [feed for store in self.upstream.stores.values() for feed in store.feeds]
            return [one.request for feed in feeds for one in feed.subscriptions.values()]
