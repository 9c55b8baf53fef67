"""A tenant with one store and one region that tells its watermark now and then."""

from __future__ import annotations

import time
from pathlib import Path

from bench.up import put, put_snapshot
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.push.change_writer import FileIdentity
from tistream.storage import layout
from tistream_upstream.tikv.change_file import GroupLimits, encode
from tistream_upstream.tikv.regions import Range


class IdleTenant:
    """Its files hold watermarks alone, of the time at which they are pushed."""

    def __init__(self, key: TenantKey, objects: Path) -> None:
        self.key = key
        self.resolved_ts = 0
        self._objects = objects
        self._snapshot_ts = self._prev_ts = 0
        self._index = 10

    def begin(self) -> None:
        """Put the schema_snap and a first file."""
        self._snapshot_ts = time.time_ns() // 1_000_000 << 18
        put_snapshot(self._objects, self.key, self._snapshot_ts)
        self.push()

    def push(self) -> int:
        """Put the next file; its ts."""
        self.resolved_ts = max(time.time_ns() // 1_000_000 << 18, self.resolved_ts + 1)
        base_ts = None if self._prev_ts else self._snapshot_ts
        one = Range(1, 1, WHOLE, self._index + 1, self._index, self.resolved_ts, base_ts=base_ts)
        ts = self.resolved_ts
        body = encode(FileIdentity(self.key, 1, self._prev_ts), [one], GroupLimits())
        put(self._objects, layout.change_file(self.key, 1, ts), body)
        self._prev_ts = ts
        return ts
