"""What an operator may do at any time: tasks are moved, split and merged, nodes drained. Asked of the public URL."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

import httpx

from support.waiting import PATIENCE_S

LATER = {httpx.codes.BAD_REQUEST, httpx.codes.NOT_FOUND, httpx.codes.CONFLICT, httpx.codes.SERVICE_UNAVAILABLE}


class NotDone(Exception):
    """An operation was not completed in time; the text says why."""


@dataclass
class Operator:
    """Makes random operator requests. Raises NotDone; any other error is a fault of the platform."""

    url: str
    rng: random.Random
    _http: httpx.Client

    def move(self) -> str:
        """Move a task to another sorter; returns a description."""

        def attempt() -> str | None:
            task = self._choose(self._running())
            others = [node for node in self._alive("sorter") if task and node != task["sorter_node"]]
            if task is None or not others:
                return None
            node = self.rng.choice(others)
            return f"task {task['task_id']} to {node}" if self._ask(task, "move", {"node_id": node}) else None

        return self._until("move", attempt)

    def split(self) -> str:
        """Split a task at a key; returns a description."""

        def attempt() -> str | None:
            task = self._choose(self._running())
            if task is None:
                return None
            key = self._key_inside(task)
            return f"task {task['task_id']} at {key}" if self._ask(task, "split", {"key": key}) else None

        return self._until("split", attempt)

    def merge(self) -> str:
        """Merge two neighbouring tasks; returns a description."""

        def attempt() -> str | None:
            tasks = self._running()
            pairs = [
                (left, right)
                for left in tasks
                for right in tasks
                if left["end_key"] and left["end_key"] == right["start_key"]
                if (left["cluster_id"], left["tenant_id"]) == (right["cluster_id"], right["tenant_id"])
            ]
            if len(tasks) == len(self._found("/v1/tasks").get("tasks", [])) == 1:
                return "none: one task has all keys"
            if not pairs:
                return None
            left, right = self.rng.choice(pairs)
            done = self._ask(left, "merge", {"neighbour": right["task_id"]})
            return f"tasks {left['task_id']} and {right['task_id']}" if done else None

        return self._until("merge", attempt)

    def drain(self, role: str, *, undo: str | None = None) -> str:
        """Drain a node of a role, or (`undo`) end that; returns its name."""

        def attempt() -> str | None:
            names = self._alive(role)
            if undo is None and len(names) < 2:
                return None
            node = undo or self.rng.choice(names)
            answer = self._http.post(f"{self.url}/v1/nodes/{node}/drain", json={"draining": undo is None})
            return node if self._took(answer) else None

        return self._until("drain", attempt)

    def owner(self) -> str:
        """The name of the meta server that is the owner."""
        return self._until("owner", lambda: self._found("/v1/owner").get("node_id"))

    def settled(self) -> bool:
        """Whether every task runs, on a sorter that is not drained."""
        tasks = self._found("/v1/tasks").get("tasks", [])
        draining = {node["node_id"] for node in self._nodes() if node["state"] != "alive"}
        return bool(tasks) and all(task["phase"] == "running" and task["sorter_node"] not in draining for task in tasks)

    def close(self) -> None:
        """No more requests."""
        self._http.close()

    def _until(self, what: str, attempt: Any) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if (done := attempt()) is not None:
                    return str(done)
            except httpx.TransportError:
                pass  # who answers may be what was struck before: asked again, and in the end NotDone
            time.sleep(0.3)
        raise NotDone(f"{what}: not within {PATIENCE_S:.0f} s")

    def _found(self, path: str) -> dict[str, Any]:
        answer = self._http.get(self.url + path)
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return {}
        answer.raise_for_status()
        body: dict[str, Any] = answer.json()
        return body

    def _nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = self._found("/v1/nodes").get("nodes", [])
        return nodes

    def _alive(self, role: str) -> list[str]:
        return [node["node_id"] for node in self._nodes() if (node["role"], node["state"]) == (role, "alive")]

    def _running(self) -> list[dict[str, Any]]:
        return [task for task in self._found("/v1/tasks").get("tasks", []) if task["phase"] == "running"]

    def _choose(self, tasks: list[dict[str, Any]]) -> dict[str, Any] | None:
        return self.rng.choice(tasks) if tasks else None

    def _ask(self, task: dict[str, Any], what: str, body: dict[str, Any]) -> bool:
        return self._took(self._http.post(f"{self.url}/v1/tasks/{task['task_id']}/{what}", json=body))

    def _took(self, answer: httpx.Response) -> bool:
        """Of what has changed meanwhile the platform says so, and another is chosen."""
        if answer.status_code in LATER:
            return False
        answer.raise_for_status()
        return True

    def _key_inside(self, task: dict[str, Any]) -> str:
        """Between the ends as numbers, so that both halves have keys that are written to now and then."""
        start, end = bytes.fromhex(task["start_key"]), bytes.fromhex(task["end_key"]) or b"\xff"
        width = max(len(start), len(end)) + 2
        low = int.from_bytes(start.ljust(width, b"\0"), "big")
        high = int.from_bytes(end.ljust(width, b"\0"), "big")
        return self.rng.randrange(low + 1, high).to_bytes(width, "big").hex()
