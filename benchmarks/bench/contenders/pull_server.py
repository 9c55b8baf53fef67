"""An API server over real HTTP with a tenant behind it: meta server, dispatcher, sorter (without Spark) and registry in
one process with it, objects in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import committed, schema_snap
from bench.inputs.pulled_pool import SNAPSHOT_TS
from support.change_files import SCHEMA, encode, table
from support.http_world import CLOCK, Server, World
from support.platform import free_port
from support.waiting import eventually
from tistream.decode import warm
from tistream.storage import layout
from tistream.wire.clients.client import HttpClient
from tistream_api.app import build_app as build_api
from tistream_api.settings import ApiSettings
from tistream_schema.app import build_app as build_schema
from tistream_schema.settings import SchemaSettings

WHOLE_CHANGE = 4  # COMMITTED
GROUP_ROWS = 65_536


class PullServer:
    """Serves `rows` rows; each call pushes one more, and gives its commit_ts."""

    def __init__(self, rows: int) -> None:
        warm()
        self._folder = tempfile.TemporaryDirectory()
        self._world = World(Path(self._folder.name), 1)
        meta, objects, ports = self._world.meta.url, self._world.objects, (free_port(), free_port())
        schema = SchemaSettings(meta_url=meta, port=ports[0])  # it tells the others where it is
        self._schema = Server(build_schema(schema, objects, HttpClient(), CLOCK), ports[0])
        self._api = Server(build_api(ApiSettings(meta_url=meta, port=ports[1]), objects, CLOCK), ports[1])
        self._world.objects.put(layout.schema_snap(TENANT), schema_snap(SNAPSHOT_TS))
        self._world.client.create_tenant(TENANT.cluster_id, TENANT.tenant_id)
        self._at, self._index = 0, 0
        self._push(committed(rows, SNAPSHOT_TS))

    def __call__(self, what: str = "push") -> int | str:
        if what == "url":
            return self._api.url
        return self._push(committed(1, self._at))

    def _push(self, rows: pa.Table) -> int:
        """The next file of the one store; the highest commit_ts in it."""
        count, first = rows.num_rows, self._index + 1
        self._index += count
        columns = {
            "type": pa.array(np.full(count, WHOLE_CHANGE, np.int32)),
            "op_type": pa.array(np.ones(count, np.int32)),
            "region_id": pa.array(np.ones(count, np.int64)),
            "region_version": pa.array(np.ones(count, np.int64)),
            "log_index": pa.array(np.arange(first, first + count)),
            **{name: rows.column(name).combine_chunks() for name in ("key", "value", "start_ts", "commit_ts")},
        }
        changes = pa.Table.from_arrays(
            [columns.get(field.name, pa.nulls(count, field.type)) for field in SCHEMA], schema=SCHEMA
        )
        before, self._at = self._at, int(rows["commit_ts"][-1].as_py())
        watermark = {
            "type": 100, "op_type": 0, "region_id": 1, "region_version": 1, "log_index": self._index,
            "first_index": first, "key": b"", "end_key": b"", "resolved_ts": self._at,
            "base_ts": None if before else SNAPSHOT_TS,
        }  # fmt: skip
        groups = [changes.slice(at, GROUP_ROWS) for at in range(0, count, GROUP_ROWS)]
        metadata = {
            "tistream.version": "1",
            "tistream.cluster_id": TENANT.cluster_id,
            "tistream.tenant_id": TENANT.tenant_id,
            "tistream.store_id": "1",
            "tistream.prev_ts": str(before),
            "tistream.first_watermark_row_group": str(len(groups)),
            "tistream.old_value": "1",
        }
        body = encode([*groups, table([watermark])], metadata)
        self._world.objects.put(layout.change_file(TENANT, 1, self._at), body)
        self._world.notify(TENANT, 1, self._at)
        eventually(lambda: self._world.progress_ts(TENANT) >= self._at)
        return self._at

    def close(self) -> None:
        """Stop everything."""
        self._api.stop()
        self._schema.stop()
        self._world.stop()
        self._folder.cleanup()
