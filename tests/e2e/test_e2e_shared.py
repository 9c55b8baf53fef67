"""The services one by one, as on machines of their own, on what a cluster shares: a real MySQL server, a real S3.

Several of each: service/meta/test_many_metas.py (owners that die), service/meta/test_moves.py (tasks that are moved,
split and merged, sorters that are drained), service/dispatcher/test_store_moves.py, and as processes
soak/test_e2e_shared_nodes.py.
"""

from __future__ import annotations

from pathlib import Path

from support import golden
from support.compare import shown, tenant_differences
from support.services import MODULES
from support.shared_services import shared_services


def test_services_on_a_shared_database_and_bucket_serve_what_tidb_wrote(tmp_path: Path) -> None:
    with shared_services(tmp_path, dict.fromkeys(MODULES, 1)) as shared:
        recorded = golden.load("everything")
        consumer = shared.up.create_for(recorded)
        shared.push([recorded.schema_snap, *recorded.files])
        events = consumer.pull(until_ts=recorded.end_ts, start_ts=recorded.snapshot_ts, limit=100_000)
        problems = tenant_differences(recorded, events)
        assert not problems, shown(problems)
