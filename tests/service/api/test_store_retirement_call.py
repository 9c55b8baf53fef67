"""`tistream store retire` on a platform in one process: refused with the reason, then done, and undone by a push."""

from __future__ import annotations

from pathlib import Path

import httpx

from support import plain_http
from support.api_world import Platform, platform
from support.tiny_tenant import TinyTenant, watermark, whole
from support.waiting import eventually
from tistream.storage import layout

TINY = TinyTenant()


def put(one: Platform, store: int, ts: int, prev_ts: int, index: int) -> None:
    """A file with a row at that index of region 1's log."""
    first = {} if prev_ts or store == 2 else {"base_ts": 100}
    rows = [whole(b"k%d" % index, ts + 1, ts + 2, index)]
    one.put(TINY.file(store, ts, prev_ts, rows, watermark(index, index, ts + 5, **first)))


def test_a_store_goes_once_nothing_waits_for_it_and_comes_back_when_it_pushes(tmp_path: Path) -> None:
    with platform(tmp_path, 1) as one:
        own = f"{one.api.url}/v1/clusters/{TINY.tenant.cluster_id}/tenants/{TINY.tenant.tenant_id}"

        def stores() -> list[str]:
            answer = plain_http.get(f"{own}/placement")
            return [store["store_id"] for store in answer.json()["stores"]] if answer.status_code == 200 else []

        def retire(store: str) -> httpx.Response:
            return plain_http.post(f"{own}/stores/{store}/retire", json={})

        one.world.objects.put(layout.schema_snap(TINY.tenant), b'{"version":1,"snapshot_ts":100,"databases":[]}')
        one.world.client.create_tenant(TINY.tenant.cluster_id, TINY.tenant.tenant_id)
        put(one, 1, 1_000, 0, 6)
        eventually(lambda: stores() == ["1"])
        eventually(lambda: "waits for what it pushes next: region 1" in retire("1").text)
        assert retire("1").status_code == 400
        assert [retire(name).status_code for name in ("9", "x", "%2e%2e")] == [404, 404, 404]
        put(one, 2, 1_010, 0, 7)
        eventually(lambda: retire("1").status_code == 202)
        eventually(lambda: stores() == ["2"])
        eventually(lambda: not list(one.world.objects.list_after(layout.store_prefix(TINY.tenant, 1))))
        put(one, 1, 1_020, 1_000, 8)
        eventually(lambda: stores() == ["1", "2"])
        eventually(lambda: one.world.progress_ts(TINY.tenant) == 1_025)
        eventually(lambda: not list(one.world.objects.list_after(layout.schema_snap(TINY.tenant))))
