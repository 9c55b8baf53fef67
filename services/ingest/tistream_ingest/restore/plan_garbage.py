"""Decides which plans of restores are not needed any more.

Pure. A restore is queued before its plan is written, and a restore that has ended does not start again. So if the plans
are listed first, and then the unfinished restores, a plan whose restore is not among them is garbage.
"""

from __future__ import annotations

from collections.abc import Iterable

from tistream.storage import layout
from tistream.wire.bulk.restores import UnfinishedRestore


def garbage(keys: Iterable[str], unfinished: Iterable[UnfinishedRestore]) -> list[str]:
    """The plans among `keys` whose restores are not in `unfinished`. The list `unfinished` must have been read after
    `keys`."""
    needed = {(one.cluster_id, one.tenant_id, one.restore_id) for one in unfinished}
    plans = {key: layout.parse_restore_plan(key) for key in keys}
    return [
        key
        for key, plan in plans.items()
        if plan is not None and (plan[0].cluster_id, plan[0].tenant_id, plan[1]) not in needed
    ]
