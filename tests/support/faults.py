"""Golden sets with something wrong in them: at a named file, in a named way, and what heals it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from support import change_files
from support.change_files import Row, groups_of, metadata_of, with_metadata
from support.golden import Delivery, GoldenSet
from support.oracle import solve
from tistream.storage import layout

SCAN_REGION = 9_000_001
SCAN_VERSION = 1_000_000


def has_changes(file: Delivery) -> bool:
    """Whether the file holds any change, not only watermarks."""
    return metadata_of(file.data)["tistream.first_watermark_row_group"] != "0"


def a_file_in_the_middle(loaded: GoldenSet, store_id: int = 2) -> Delivery:
    """A file with changes, well inside one store's chain."""
    chain = loaded.chain(store_id)
    return next(file for file in chain[len(chain) // 3 :] if has_changes(file))


def replaced(files: Sequence[Delivery], key: str, alter: Callable[[bytes], bytes]) -> list[Delivery]:
    """The files with one of them altered."""
    return [replace(file, data=alter(file.data)) if file.key == key else file for file in files]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": change_files.truncated,
    "empty": lambda data: b"",
    "footer-flipped": change_files.flipped_footer,
    "changes-flipped": change_files.flipped_change_group,
    "watermarks-flipped": change_files.flipped_watermark_group,
    "unknown-version": lambda data: with_metadata(data, version="2"),
    "no-version": lambda data: with_metadata(data, version=None),
    "wrong-tenant": lambda data: with_metadata(data, tenant_id="somebody-else"),
    "wrong-cluster": lambda data: with_metadata(data, cluster_id="8"),
    "wrong-store": lambda data: with_metadata(data, store_id="3"),
    "wrong-crc": lambda data: with_metadata(data, row_group_crc32=",".join("00000000" for _ in groups_of(data))),
    "no-old-values": lambda data: with_metadata(data, old_value="0"),
    "chain-broken": lambda data: with_metadata(data, prev_ts=str(int(metadata_of(data)["tistream.prev_ts"]) - 1)),
}
"""Ways to spoil one file; each must hold its store, with a reason that names the object."""


def whole_scan(loaded: GoldenSet, store_id: int, ts: int) -> Delivery:
    """A new chain of `store_id` that restates everything: one region over all keys, scanned from the snapshot. Every
    committed change is a COMMITTED row, so that changes lost in a quarantine arrive, and all others arrive a second
    time."""
    rows = solve([file.data for file in loaded.files], loaded.snapshot_ts, keep_index_keys=True).rows
    place = {"type": 4, "region_id": SCAN_REGION, "region_version": SCAN_VERSION, "log_index": 0}
    changes: list[dict[str, Any]] = [
        {**place, "op_type": op, **dict(zip(_SCANNED, cells, strict=True))}
        for op, *cells in rows.sort("key", "commit_ts").select("op", *_SCANNED).iter_rows()
    ]
    watermark = {
        **{**place, "type": 100, "op_type": 0},
        "key": b"",
        "end_key": b"",
        "first_index": 1,
        "base_ts": loaded.snapshot_ts,
        "resolved_ts": loaded.end_ts,
    }
    tenant = loaded.tenant
    data = change_files.change_file(
        tenant.cluster_id, tenant.tenant_id, store_id, 0, changes=changes, watermarks=[watermark]
    )
    return Delivery(0.0, layout.change_file(tenant, store_id, ts), data)


_SCANNED = ("key", "value", "old_value", "start_ts", "commit_ts", "txn_source")


def with_row(loaded: GoldenSet, value: bytes, *, key: bytes | None = None, table_id: int = 0) -> tuple[Delivery, Row]:
    """One file with one COMMITTED put more, and that put: of `key`, else of a row of `table_id` that it commits.

    It stands where the contract allows it: in the log of the region that has the key, at the last index that the file
    covers, committed at that region's resolved_ts.
    """
    prefix = b"t" + (2**63 + table_id).to_bytes(8, "big") + b"_r"
    for file in loaded.files:
        groups = groups_of(file.data)
        metadata = metadata_of(file.data)
        first = int(metadata["tistream.first_watermark_row_group"])
        entries = [row for group in groups[:first] for row in group.to_pylist()]
        watermarks = [row for group in groups[first:] for row in group.to_pylist()]
        own = [entry["key"] for entry in entries if entry["type"] == 2 and entry["key"].startswith(prefix)]
        for wanted in own if key is None else [key]:
            watermark = _covering(watermarks, wanted)
            if watermark is None:
                continue
            names = ("region_id", "region_version", "log_index")
            times = {"start_ts": watermark["resolved_ts"] - 1, "commit_ts": watermark["resolved_ts"]}
            place = {name: watermark[name] for name in names}
            more = {**place, **times, "type": 4, "op_type": 1, "key": wanted, "value": value}
            region = [at for at, entry in enumerate(entries) if entry["region_id"] == place["region_id"]]
            entries.insert(region[-1] + 1 if region else len(entries), more)
            kept = {name: text for name, text in metadata.items() if name != change_files.CRC}
            kept["tistream.first_watermark_row_group"] = "1"
            tables = [change_files.table(entries), change_files.table(watermarks)]
            return replace(file, data=change_files.encode(tables, kept)), more
    raise AssertionError("no file covers such a key")


def _covering(watermarks: Sequence[Row], key: bytes) -> Row | None:
    """The file's last watermark of the key, if it covers any entries and is no scan."""
    covering = [row for row in watermarks if row["key"] <= key and (not row["end_key"] or key < row["end_key"])]
    if not covering or covering[-1]["base_ts"] is not None:
        return None
    return covering[-1] if covering[-1]["first_index"] <= covering[-1]["log_index"] else None
