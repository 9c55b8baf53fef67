"""What chaos orders of a platform that has changed meanwhile."""

from __future__ import annotations

import random

import httpx

from support.chaos.operate import Operator


class Platform:
    """The tasks of one tenant, as the public URL shows them; it does all that is ordered."""

    def __init__(self, *cuts: str) -> None:
        bounds = ["", *cuts, ""]
        self.tasks = [
            {
                "task_id": number,
                "cluster_id": "7",
                "tenant_id": "acme",
                "start_key": bounds[number - 1],
                "end_key": bounds[number],
                "phase": "running",
                "sorter_node": "sorter-1",
            }
            for number in range(1, len(bounds))
        ]
        self.orders: list[str] = []
        http = httpx.Client(transport=httpx.MockTransport(self._answer))
        self.operator = Operator("http://platform", random.Random(1), http)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.orders.append(f"{request.url.path} {request.content.decode()}")
            return httpx.Response(200, json={})
        return httpx.Response(200, json={"tasks": self.tasks})


def test_two_neighbours_are_merged() -> None:
    platform = Platform("6d", "74")
    assert platform.operator.merge() in ("tasks 1 and 2", "tasks 2 and 3")
    assert len(platform.orders) == 1


def test_one_task_that_is_left_has_nothing_to_merge_with() -> None:
    platform = Platform()
    assert platform.operator.merge() == "none: one task has all keys"
    assert platform.orders == []
