"""Every object key that is read or written. This is the only module that builds or parses keys.

See docs/formats.md. Malicious names cannot reach a key: `TenantKey.parse` has checked them, numbers are formatted here,
and nonces are hexadecimal by construction.
"""

from __future__ import annotations

import hashlib
import re

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey

_PUSH = re.compile(
    r"data_change_buffer/cluster-(?P<cluster>[A-Za-z0-9][A-Za-z0-9_-]{0,62})"
    r"/Tenant-(?P<tenant>[A-Za-z0-9][A-Za-z0-9_-]{0,62})"
    r"/store-(?P<store>0|[1-9][0-9]{0,18})/file-(?P<ts>[0-9]{20})"
)
_OF_TENANT = re.compile(
    r"(?:data_change_buffer|base_buffer|schema|served|restore|committed/[0-9a-f]{2})/cluster-(?P<cluster>[A-Za-z0-9][A-Za-z0-9_-]{0,62})"
    r"/Tenant-(?P<tenant>[A-Za-z0-9][A-Za-z0-9_-]{0,62})/"
)
_BACKFILL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_REFUSED = re.compile(r"refused-(?P<number>[0-9]{8})")
_RESTORE_PLAN = re.compile(_OF_TENANT.pattern + r"(?P<restore>[0-9a-f]{32})/plan")
RESTORES = "restore/"  # below it are the plans of the restores of all tenants
_CHUNK = re.compile(r"chunk-(?P<number>[0-9]{8})")
_WRITTEN = re.compile(r"/(segment|pending|run)/(?P<epoch>[0-9]{10})-[^/]+\.parquet$")
_TASK = re.compile(r"committed/[0-9a-f]{2}/cluster-[^/]+/Tenant-[^/]+/task-(?P<task>[0-9]+)/")
_RESERVED = re.compile(r"(?P<store>[0-9]{20})")
_STORE = re.compile(r"store-(?P<store>0|[1-9][0-9]{0,18})/")


def tenant_of(key: str) -> TenantKey | None:
    """The tenant whose prefix an object's key has; None if the object belongs to no tenant."""
    found = _OF_TENANT.match(key)
    return None if found is None else TenantKey(found["cluster"], found["tenant"])


def push_prefix(tenant: TenantKey) -> str:
    """The prefix below which a tenant's stores push (design.md 2)."""
    return f"data_change_buffer/cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/"


def prefixes_of(tenant: TenantKey) -> tuple[str, ...]:
    """The prefixes below which every object of a tenant is, and no object of another tenant."""
    name = f"cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/"
    own = (push_prefix(tenant), f"base_buffer/{name}", f"schema/{name}", f"served/{name}", f"restore/{name}")
    return (*own, *task_prefixes(tenant))


def task_prefixes(tenant: TenantKey) -> tuple[str, ...]:
    """The prefixes below which the tasks of a tenant write. Each task writes below one of them."""
    name = f"cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/"
    return tuple(f"committed/{spread:02x}/{name}" for spread in range(256))


def schema_snap(tenant: TenantKey) -> str:
    """The key of the tenant's initial schema snapshot, which is beside its stores."""
    return f"{push_prefix(tenant)}schema_snap"


def reserved_prefix(tenant: TenantKey) -> str:
    """The prefix of the objects that reserve the ids of a tenant's territories. A LIST of it shows no other objects."""
    return f"{push_prefix(tenant)}territories/"


def reserved_territory(tenant: TenantKey, store_id: int) -> str:
    """The key of the object that reserves the id of an agent's territory (docs/agent.md)."""
    return f"{reserved_prefix(tenant)}{store_id:020d}"


def parse_reserved_territory(tenant: TenantKey, key: str) -> int | None:
    """Parse a `reserved_territory` key of this tenant to the id. Returns None for any other key."""
    found = _RESERVED.fullmatch(key.removeprefix(reserved_prefix(tenant)))
    return None if found is None or int(found["store"]) >= 2**63 else int(found["store"])


def store_prefix(tenant: TenantKey, store_id: int) -> str:
    """The prefix below which one store pushes."""
    return f"{push_prefix(tenant)}store-{store_id}/"


def change_file_prefix(tenant: TenantKey, store_id: int) -> str:
    """The prefix of one store's change files. A LIST of it shows no other objects."""
    return f"{store_prefix(tenant, store_id)}file-"


def change_file(tenant: TenantKey, store_id: int, ts: int) -> str:
    """The key of one change file."""
    return f"{change_file_prefix(tenant, store_id)}{ts:020d}"


def parse_change_file(key: str) -> tuple[TenantKey, int, int] | None:
    """Parse the key of a change file to (tenant, store_id, ts). Returns None for any other key."""
    found = _PUSH.fullmatch(key)
    if found is None or max(int(found["ts"]), int(found["store"])) >= 2**63:
        return None
    return TenantKey(found["cluster"], found["tenant"]), int(found["store"]), int(found["ts"])


def parse_store_prefix(tenant: TenantKey, prefix: str) -> int | None:
    """Parse a `store_prefix`, as a LIST with a delimiter returns it, to the store_id. Returns None for any other
    name."""
    found = _STORE.fullmatch(prefix.removeprefix(push_prefix(tenant)))
    return None if found is None or int(found["store"]) >= 2**63 else int(found["store"])


def log_release(tenant: TenantKey, number: int) -> str:
    """The key of the record that decides release `number` (>= 1): which changes are taken from the tenant's log backup
    next (docs/log-backup.md)."""
    return f"{push_prefix(tenant)}ingest/log-backup/{number:020d}"


def backfill_prefix(tenant: TenantKey, backfill_id: str) -> str:
    """The prefix of a backfill: its plan, its base chunks, and its end (docs/backfill.md). Raises InvalidRequest if the
    id cannot be part of a key."""
    if not _BACKFILL.fullmatch(backfill_id):
        raise InvalidRequest(f"backfill_id {backfill_id[:80]!r} is not of the form {_BACKFILL.pattern}")
    return f"base_buffer/cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/backfill-{backfill_id}/"


def backfill_plan(tenant: TenantKey, backfill_id: str) -> str:
    """The key of a backfill's plan."""
    return f"{backfill_prefix(tenant, backfill_id)}plan"


def backfill_done(tenant: TenantKey, backfill_id: str) -> str:
    """The key of the object that ends a backfill: no more chunks follow."""
    return f"{backfill_prefix(tenant, backfill_id)}done"


def chunk_prefix(tenant: TenantKey, backfill_id: str) -> str:
    """The prefix of a backfill's chunks. A LIST of it shows no other objects."""
    return f"{backfill_prefix(tenant, backfill_id)}chunk-"


def base_chunk(tenant: TenantKey, backfill_id: str, number: int) -> str:
    """The key of chunk `number` (>= 0) of a backfill."""
    return f"{chunk_prefix(tenant, backfill_id)}{number:08d}"


def refused_prefix(tenant: TenantKey, backfill_id: str) -> str:
    """The prefix of the objects that record which chunks are refused, and why."""
    return f"{backfill_prefix(tenant, backfill_id)}refused-"


def refused_chunk(tenant: TenantKey, backfill_id: str, number: int) -> str:
    """The key of the object that records why chunk `number` is never used."""
    return f"{refused_prefix(tenant, backfill_id)}{number:08d}"


def parse_refused_chunk(tenant: TenantKey, backfill_id: str, key: str) -> int | None:
    """Parse a `refused_chunk` key of this backfill to the chunk's number. Returns None for any other key."""
    found = _REFUSED.fullmatch(key.removeprefix(backfill_prefix(tenant, backfill_id)))
    return None if found is None else int(found["number"])


def parse_base_chunk(tenant: TenantKey, backfill_id: str, key: str) -> int | None:
    """Parse a `base_chunk` key of this backfill to the chunk's number. Returns None for any other key."""
    found = _CHUNK.fullmatch(key.removeprefix(backfill_prefix(tenant, backfill_id)))
    return None if found is None else int(found["number"])


def task_prefix(tenant: TenantKey, task_id: int) -> str:
    """The prefix of everything that a task writes.

    The prefix begins with one of 256 names, chosen by a hash of the task's name, because object storage limits the
    requests per second for keys with a common beginning (docs/formats.md).
    """
    name = f"cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/task-{task_id}"
    spread = hashlib.blake2b(name.encode(), digest_size=1).hexdigest()
    return f"committed/{spread}/{name}/"


def task_of(key: str) -> int | None:
    """The id of the task that wrote an object; None if the key is not that of a task's object."""
    found = _TASK.match(key)
    return None if found is None else int(found["task"])


def manifests(tenant: TenantKey, task_id: int) -> str:
    """The prefix of a task's manifests."""
    return f"{task_prefix(tenant, task_id)}manifest/"


def data_prefixes(tenant: TenantKey, task_id: int) -> tuple[str, str, str]:
    """The prefixes below which a task writes its data: segments, pending parts, and runs of the version index."""
    prefix = task_prefix(tenant, task_id)
    return f"{prefix}segment/", f"{prefix}pending/", f"{prefix}run/"


def epoch_of(key: str) -> int | None:
    """The task epoch under which a segment, pending part or run was written; None for any other key."""
    found = _WRITTEN.search(key)
    return None if found is None else int(found["epoch"])


def manifest(tenant: TenantKey, task_id: int, number: int) -> str:
    """The key of manifest `number` (>= 1) of a task."""
    return f"{task_prefix(tenant, task_id)}manifest/{number:020d}"


def floor(tenant: TenantKey, task_id: int) -> str:
    """The key of the task's floor object, which names the checkpoint manifest at which readers begin."""
    return f"{task_prefix(tenant, task_id)}floor"


def segment(tenant: TenantKey, task_id: int, epoch: int, nonce: str, part: int) -> str:
    """The key of a segment that the tick `nonce` writes under `epoch`. `part` numbers the segments of a tick."""
    return f"{task_prefix(tenant, task_id)}segment/{epoch:010d}-{nonce}-{part:04d}.parquet"


def pending_part(tenant: TenantKey, task_id: int, epoch: int, nonce: str, part: int) -> str:
    """The key of a pending part that the tick `nonce` writes under `epoch`. `part` numbers the parts of a tick."""
    return f"{task_prefix(tenant, task_id)}pending/{epoch:010d}-{nonce}-{part:04d}.parquet"


def run(tenant: TenantKey, task_id: int, epoch: int, nonce: str, part: int) -> str:
    """The key of an object of the version index that the job `nonce` writes under `epoch`. `part` numbers the objects
    of a job."""
    return f"{task_prefix(tenant, task_id)}run/{epoch:010d}-{nonce}-{part:04d}.parquet"


def restore_plan(tenant: TenantKey, restore_id: str) -> str:
    """The key of a running restore's plan, which lists its chunks."""
    return f"restore/cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/{restore_id}/plan"


def parse_restore_plan(key: str) -> tuple[TenantKey, str] | None:
    """Parse a `restore_plan` key to the tenant and the restore id. Returns None for any other key."""
    found = _RESTORE_PLAN.fullmatch(key) if key.startswith(RESTORES) else None
    return None if found is None else (TenantKey(found["cluster"], found["tenant"]), found["restore"])


def served(tenant: TenantKey) -> str:
    """The key of the tenant's served object (tistream.format.served)."""
    return f"served/cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/progress"


def schema_log_prefix(tenant: TenantKey) -> str:
    """The prefix of the schema registry's log."""
    return f"schema/cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/log/"


def schema_log(tenant: TenantKey, number: int) -> str:
    """The key of object `number` (>= 1) of the schema registry's log."""
    return f"{schema_log_prefix(tenant)}{number:020d}"


def schema_floor(tenant: TenantKey) -> str:
    """The key of the schema log's floor, which names the base at which readers begin."""
    return f"schema/cluster-{tenant.cluster_id}/Tenant-{tenant.tenant_id}/floor"
