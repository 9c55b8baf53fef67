"""What the API says of a changefeed and its tenant while services are killed and start again: a 503 is asked again."""

from __future__ import annotations

from collections.abc import Sequence

from support import plain_http
from support.golden import Delivery
from support.platform import Platform
from support.pull import Consumer
from support.waiting import awaited, eventually


def checkpoint(consumer: Consumer, name: str) -> int:
    """The changefeed's checkpoint_ts; 0 if the meta server does not answer now. Fails if the changefeed has failed."""
    answer = consumer.client.get(f"{consumer.base}/changefeeds/{name}")
    assert answer.status_code in (200, 503), answer.text
    if answer.status_code == 503:
        return 0
    assert answer.json()["state"] != "failed", answer.text
    return int(answer.json()["checkpoint_ts"])


def settled(up: Platform, consumer: Consumer, pushed: Sequence[Delivery]) -> int:
    """The tenant's resolved_ts, once nothing more comes of these files, which are all that it has."""
    return awaited(lambda: _settled(up, consumer, pushed))


def _settled(up: Platform, consumer: Consumer, pushed: Sequence[Delivery]) -> int:
    """The same, or 0 if not every task has a manifest that covers the files, or the API does not know it yet."""
    newest = {str(store): ts for store, ts in sorted(file.store_and_ts for file in pushed)}
    tenant = consumer.tenant
    answer = plain_http.patient_get(
        f"http://127.0.0.1:{up.ports()['sorter']}/v1/tasks",
        params={"cluster_id": tenant.cluster_id, "tenant_id": tenant.tenant_id},
        headers=up.service_headers(),
    )
    assert answer.status_code == 200, answer.text
    tasks = answer.json()["tasks"]
    for task in tasks:
        covered = {store: max(chain["at_ts"] for chain in chains) for store, chains in task["durable"].items()}
        if any(covered.get(store, 0) < ts for store, ts in newest.items()):
            return 0
    lowest = min((int(task["progress_ts"]) for task in tasks), default=0)
    return lowest if lowest == int(consumer.status()["resolved_ts"]) else 0


def standing(consumer: Consumer) -> int:
    """The tenant's resolved_ts, once it no longer rises."""
    seen: list[int] = []

    def stands() -> bool:
        answer = consumer.client.get(f"{consumer.base}/status")
        seen.append(int(answer.json()["resolved_ts"]) if answer.status_code == 200 else 0)
        return len(seen) > 3 and seen[-1] > 0 and seen[-1] == seen[-3]

    eventually(stands, pause_s=2.0)
    return seen[-1]
