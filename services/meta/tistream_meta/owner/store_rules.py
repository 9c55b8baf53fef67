"""Executes operators' requests to retire stores."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream_meta.database.repository import Repository
from tistream_meta.decide.model import Change
from tistream_meta.tenants.store_files import files_end

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreRules:
    """Executes the requests of operators about stores. `write` executes a change as the owner, and publishes it in the
    routes."""

    repository: Repository
    objects: ObjectStore
    write: Callable[[Callable[[], Change | None]], None]

    def retire(self, key: TenantKey, store_id: int, taken_ts: int, *, discard: bool) -> None:
        """Mark a store as retired: no dispatcher reads it any more, and its files up to `taken_ts`, which every task
        has applied, are deleted in the background; with `discard` all of its present files. Has no effect on a retired
        store. Raises Unavailable, UnknownName, and InvalidRequest if there are files after `taken_ts` and `discard` is
        false."""
        through_ts = files_end(self.objects, key, store_id, taken_ts, discard=discard)
        done: list[Change | None] = []

        def body() -> Change | None:
            done.append(self.repository.ends.retire_store(key, store_id, through_ts))
            return done[-1]

        self.write(body)
        if done[-1] is not None:
            fields = {"tenant": str(key), "store": store_id, "through_ts": str(through_ts)}
            log.warning("store is retired", extra=fields)
