"""Which plans of restores are garbage. Pure.

A restore is queued before its plan is written, and one that has ended does not wait or run again. So of plans that were
listed before the meta server was asked, those of no unfinished restore are not needed any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from tistream.storage import layout
from tistream.wire.bulk.restores import UnfinishedRestore


def garbage(keys: Iterable[str], unfinished: Iterable[UnfinishedRestore]) -> list[str]:
    """Of `keys`, the plans of restores that are not in `unfinished`, which was read after `keys`."""
    needed = {(one.cluster_id, one.tenant_id, one.restore_id) for one in unfinished}
    plans = {key: layout.parse_restore_plan(key) for key in keys}
    return [
        key
        for key, plan in plans.items()
        if plan is not None and (plan[0].cluster_id, plan[0].tenant_id, plan[1]) not in needed
    ]
