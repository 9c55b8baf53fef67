"""What a hostile tenant puts into its own part of the bucket: damage, lies and junk. Pure, but for `Junk`."""

from __future__ import annotations

import os
import resource
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import boto3
import orjson
import pyarrow as pa
from botocore.exceptions import ClientError

from support import change_files
from support.change_files import SCHEMA, Row, with_metadata
from support.golden import Delivery, GoldenSet
from support.hostile.attacker import NICE
from support.minio import Minio
from tistream.model.ids import TenantKey
from tistream.storage import layout

FIRST_STORE = 101
BOMB_VALUE, BOMB_ROWS = 900 << 10, 16_384  # 14 GiB of one value that a dictionary holds once
WAIT_TS = 1 << 20  # between a store's hostile file and the one that mends it


def sound(tenant: TenantKey, store_id: int, snapshot_ts: int) -> bytes:
    """A store's first file that has no changes: an empty scan as of the tenant's beginning."""
    return change_files.change_file(
        tenant.cluster_id, tenant.tenant_id, store_id, 0, changes=[], watermarks=[_scan(snapshot_ts)]
    )


def _scan(snapshot_ts: int) -> Row:
    return {
        "type": 100,
        "op_type": 0,
        "region_id": 1,
        "region_version": 0,
        "log_index": 0,
        "key": b"",
        "end_key": b"",
        "first_index": 1,
        "base_ts": snapshot_ts,
        "resolved_ts": snapshot_ts,
    }


def bomb(tenant: TenantKey, store_id: int, snapshot_ts: int, rows: int = BOMB_ROWS, value: int = BOMB_VALUE) -> bytes:
    """A sound file by its footer and its CRCs, of a few kilobytes, whose values take gigabytes once they are written
    out: a dictionary holds the one that all rows have."""
    ts = snapshot_ts + 1
    columns: dict[str, Any] = {
        "type": [4] * rows,
        "op_type": [1] * rows,
        "region_id": [1] * rows,
        "region_version": [0] * rows,
        "log_index": [0] * rows,
        "key": [b"t" + (2**63 + 1_000_000).to_bytes(8, "big") + b"_r" + n.to_bytes(8, "big") for n in range(rows)],
        "start_ts": [ts] * rows,
        "commit_ts": [ts + 1] * rows,
    }
    arrays = []
    for field in SCHEMA:
        if field.name == "value":
            indices = pa.array([0] * rows, pa.int32())
            arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array([b"\0" * value], pa.binary())))
        else:
            arrays.append(pa.array(columns.get(field.name, [None] * rows), field.type))
    changes = pa.table(arrays, names=SCHEMA.names)
    watermarks = change_files.table([_scan(snapshot_ts)]).cast(changes.schema)
    said = {
        "tistream.version": "1",
        "tistream.cluster_id": tenant.cluster_id,
        "tistream.tenant_id": tenant.tenant_id,
        "tistream.store_id": str(store_id),
        "tistream.prev_ts": "0",
        "tistream.first_watermark_row_group": "1",
        "tistream.old_value": "1",
    }
    return change_files.encode([changes, watermarks], said)


def _long_footer(data: bytes) -> bytes:
    return data[:-8] + struct.pack("<I", 0x7FFFFFFF) + data[-4:]


def _footer_of_noise(data: bytes) -> bytes:
    return data[:4] + b"\x9c" * (3 << 20) + struct.pack("<I", 3 << 20) + b"PAR1"


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "cut": change_files.truncated,
    "empty": lambda data: b"",
    "noise": lambda data: b"\xff" * 10_000,
    "footer-flipped": change_files.flipped_footer,
    "watermarks-flipped": change_files.flipped_watermark_group,
    "another-version": lambda data: with_metadata(data, version="99"),
    "another-tenant": lambda data: with_metadata(data, tenant_id="somebody-else"),
    "another-store": lambda data: with_metadata(data, store_id="9"),
    "giant-store": lambda data: with_metadata(data, prev_ts="9" * 18),
    "footer-of-two-gigabytes": _long_footer,
    "footer-of-noise": _footer_of_noise,
    "crcs-without-end": lambda data: with_metadata(data, row_group_crc32=",".join(["00000000"] * 100_000)),
}


def hostile_stores(tenant: TenantKey, snapshot_ts: int, round_: int) -> list[Delivery]:
    """Stores whose files are damaged, one for each kind of damage, and two with decompression bombs; each round has
    other stores."""
    made, first = [], FIRST_STORE + 100 * round_
    for number, spoil in enumerate(SPOILT.values()):
        store_id = first + number
        made.append(_first_of(tenant, store_id, spoil(sound(tenant, store_id, snapshot_ts)), snapshot_ts))
    for number in range(2):
        store_id = first + len(SPOILT) + number
        made.append(_first_of(tenant, store_id, bomb(tenant, store_id, snapshot_ts), snapshot_ts))
    return made


def _first_of(tenant: TenantKey, store_id: int, data: bytes, snapshot_ts: int) -> Delivery:
    return Delivery(0.0, layout.change_file(tenant, store_id, snapshot_ts + 1), data)


def mending(tenant: TenantKey, spoilt: Delivery, snapshot_ts: int) -> Delivery:
    """A new chain of a hostile store, which ends its quarantine."""
    store_id, ts = spoilt.store_and_ts
    key = layout.change_file(tenant, store_id, ts + WAIT_TS)
    return Delivery(0.0, key, sound(tenant, store_id, snapshot_ts))


NAMES = (
    "n" * 1_000,
    "名前🦊ẞ",
    "../../committed",
    "a\0b",
    "a\nb",
    "\u202egood",
    "'; DROP TABLE x; --",
    "<b>x</b>",
    "*",
)


def with_hostile_names(loaded: GoldenSet) -> GoldenSet:
    """Its schema_snap has a database of each name more, with a table of that name whose columns bear it too."""
    snap = orjson.loads(loaded.schema_snap.data)
    system = next(one for one in snap["databases"] if one["tables"])
    plain = next(one for one in snap["databases"] if not one["tables"])
    for number, name in enumerate(NAMES):
        named = {"O": name, "L": name.lower()}
        table = orjson.loads(orjson.dumps(system["tables"][0]))
        table |= {"id": 900_000 + number, "name": named}
        for at, column in enumerate(table["cols"]):
            column["name"] = {"O": f"{name}{at}", "L": f"{name.lower()}{at}"}
        snap["databases"].append(
            {"db_info": {**plain["db_info"], "id": 800_000 + number, "db_name": named}, "tables": [table]}
        )
    return replace(loaded, schema_snap=replace(loaded.schema_snap, data=orjson.dumps(snap)))


def junk_names(tenant: TenantKey, count: int) -> Iterator[str]:
    """Small objects that are no change files, before, between and behind those that are."""
    own = layout.push_prefix(tenant)
    kinds = (
        "store-1/file-{0:020d}-junk",
        "store-1/zzz-{0}",
        "store-5{0}/junk",
        "store-2/file-{0}",
        "store-{0}x/file-1",
        "junk-{0}/" + "d/" * 20 + "x",
        "store-3/名前-{0}",
        "store-3/" + "n" * 200 + "-{0}",
        "store-18446744073709551616{0}/file-00000000000000000001",
        "store-1/file-{0:020d}/file-00000000000000000001",
        "..{0}",
    )
    for number in range(count):
        yield own + kinds[number % len(kinds)].format(number)


class Junk:
    """Puts junk objects into a bucket, and deletes them."""

    def __init__(self, minio: Minio, bucket: str, tenant: TenantKey) -> None:
        self._minio, self._bucket, self._tenant = minio, bucket, tenant
        self.put: list[str] = []
        self.refused = 0
        self.used_s = 0.0  # processor time of who scattered it

    def scatter(self, count: int) -> None:
        """So many, by a process of their own: the consumers that measure are threads of this one. What the object store
        itself refuses is counted."""
        keys, before_s = list(junk_names(self._tenant, count)), ended_children_s()
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=os.nice, initargs=(NICE,)) as process:
            put = process.submit(_put, self._minio.client_options, self._bucket, keys).result()
        self.used_s += ended_children_s() - before_s  # the attackers are waited for later
        self.put += put
        self.refused += len(keys) - len(put)

    def sweep(self) -> None:
        """Delete all junk objects."""
        client = self._minio.client()
        for at in range(0, len(self.put), 1_000):
            named = [{"Key": key} for key in self.put[at : at + 1_000]]
            client.delete_objects(Bucket=self._bucket, Delete={"Objects": named, "Quiet": True})
        self.put.clear()


def ended_children_s() -> float:
    """Processor time of those of this process's children that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _put(options: dict[str, Any], bucket: str, keys: list[str]) -> list[str]:
    """Those of the keys that there is an object of now."""
    client = boto3.client("s3", **options)

    def one(key: str) -> bool:
        try:
            client.put_object(Bucket=bucket, Key=key, Body=b"junk")
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        return [key for key, done in zip(keys, threads.map(one, keys), strict=True) if done]
