"""A backup and a backfill compile no kernel that the warm-up did not."""

from __future__ import annotations

from tistream.decode.mvcc import mvcc_kernel, sst_kernel
from tistream.encode import join_kernels, text_kernels
from tistream.logbackup import kernels
from tistream_ingest.warmup import warm_kernels


def test_every_kernel_is_compiled() -> None:
    warm_kernels()
    found = {
        name: len(one.signatures)
        for module in (mvcc_kernel, join_kernels, text_kernels, kernels, sst_kernel)
        for name, one in vars(module).items()
        if hasattr(one, "signatures") and not name.startswith("_") and one.__module__ == module.__name__
    }
    assert {"parse_write_records", "entry_places", "copy_entries", "put_rows", "parse_times"} <= found.keys()
    assert all(found.values()), found
