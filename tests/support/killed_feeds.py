"""What the API says of a changefeed while services are killed and start again: a 503 is asked again."""

from __future__ import annotations

from support.pull import Consumer
from support.waiting import eventually


def checkpoint(consumer: Consumer, name: str) -> int:
    """The changefeed's checkpoint_ts; 0 if the meta server does not answer now. Fails if the changefeed has failed."""
    answer = consumer.client.get(f"{consumer.base}/changefeeds/{name}")
    assert answer.status_code in (200, 503), answer.text
    if answer.status_code == 503:
        return 0
    assert answer.json()["state"] != "failed", answer.text
    return int(answer.json()["checkpoint_ts"])


def standing(consumer: Consumer) -> int:
    """The tenant's resolved_ts, once it no longer rises."""
    seen: list[int] = []

    def stands() -> bool:
        answer = consumer.client.get(f"{consumer.base}/status")
        seen.append(int(answer.json()["resolved_ts"]) if answer.status_code == 200 else 0)
        return len(seen) > 3 and seen[-1] > 0 and seen[-1] == seen[-3]

    eventually(stands, pause_s=2.0)
    return seen[-1]
