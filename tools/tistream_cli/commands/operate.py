"""The implementation of `tistream node …`, `tistream task …` and `tistream owner`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tistream import concurrency
from tistream.clock import SystemClock
from tistream_client.cli import documents
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError, NoAnswer
from tistream_client.cli.output import json_wanted, say, show_list

_LOOK_S = 0.5  # polling interval while a node is being drained
# What a node may hold: a sorter holds tasks, a dispatcher stores, a worker of changefeeds shards.
_HELD = ("tasks", "stores", "shards")


def list_nodes(client: ApiClient) -> None:
    """Print every process except the meta servers, one per line. Raises CliError."""
    nodes = client.call("GET", "/v1/nodes")["nodes"]
    rows = [
        (node["node_id"], node["role"], node["state"], *(str(node.get(one, 0)) for one in _HELD), node["url"])
        for node in nodes
    ]
    show_list("nodes", nodes, ("node", "role", "state", *_HELD, "url"), rows)


def drain_node(client: ApiClient, node: str, draining: bool, wait_s: float | None = None) -> None:
    """Move all tasks and stores off a node, or with `draining` false cancel that. With `wait_s`, wait up to that number
    of seconds until the node holds nothing. Raises CliError, also if the node still holds something then, or if no
    other node can take it."""
    client.call("POST", f"/v1/nodes/{quote(node, safe='')}/drain", {"draining": draining})
    if not json_wanted():
        sys.stdout.write(f"node {node} is being drained\n" if draining else f"node {node} takes work again\n")
        sys.stdout.flush()
    waits = draining and wait_s is not None
    if wait_s is not None and waits:
        _wait_until_empty(client, node, wait_s)
    if waits or json_wanted():
        say(f"node {node} has nothing left", {"node": node, "draining": draining, "empty": waits})


def _wait_until_empty(client: ApiClient, node: str, wait_s: float) -> None:
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + int(wait_s * 1000)
    while True:
        try:
            left, takers = left_on(client.call("GET", "/v1/nodes")["nodes"], node)
        except NoAnswer:
            left, takers = "what it holds is not known", True  # retry: another API server may answer
        if left is None:
            return
        if not takers:
            raise CliError(
                f"node {node}: {left}, and no other node is available to take them: start one, or cancel with --undo"
            )
        if clock.monotonic_ms() >= until_ms:
            raise CliError(
                f"node {node}: {left} after {wait_s:g} s; the drain continues: repeat the command with a longer "
                "--wait, or cancel with --undo"
            )
        concurrency.sleep(_LOOK_S)


def left_on(nodes: Sequence[Mapping[str, Any]], node: str) -> tuple[str | None, bool]:
    """Describe what a node still holds. Returns (a text, or None if it holds nothing; whether another node could take
    it)."""
    [own] = [one for one in nodes if one["node_id"] == node]
    takers = any(one["role"] == own["role"] and one["state"] in ("alive", "suspect") for one in nodes if one is not own)
    if not any(own.get(one) for one in _HELD):
        return None, takers
    if own.get("shards"):
        return f"{own['shards']} shards of changefeeds are left", takers
    return f"{own['tasks']} tasks and {own['stores']} stores are left", takers


def list_tasks(client: ApiClient) -> None:
    """Print every task, one per line. Raises CliError."""
    tasks = client.call("GET", "/v1/tasks")["tasks"]
    rows = [
        (
            str(task["task_id"]),
            f"{task['cluster_id']}/{task['tenant_id']}",
            task["start_key"] or "-",
            task["end_key"] or "-",
            task["phase"],
            str(task["task_epoch"]),
            task["sorter_node"] or "-",
            task["next_node"] or "-",
        )
        for task in tasks
    ]
    show_list("tasks", tasks, ("task", "tenant", "from", "to", "phase", "epoch", "sorter", "next"), rows)


def move_task(client: ApiClient, task: int, node: str) -> None:
    """Move a task to a sorter. Raises CliError."""
    client.call("POST", f"/v1/tasks/{task}/move", {"node_id": node})
    say(f"task {task} moves to {node} once that sorter has prepared", {"task": task, "node": node})


def split_task(client: ApiClient, task: int, key: str | None) -> None:
    """Split a task into two. Raises CliError."""
    found = client.call("POST", f"/v1/tasks/{task}/split", {"key": key})
    say(f"task {task} is split into {_names(found['children'])}", found)


def merge_tasks(client: ApiClient, task: int, neighbour: int) -> None:
    """Merge two neighbouring tasks. Raises CliError."""
    found = client.call("POST", f"/v1/tasks/{task}/merge", {"neighbour": neighbour})
    say(f"tasks {task} and {neighbour} are merged into {_names(found['children'])}", found)


def _names(tasks: Sequence[int]) -> str:
    return " and ".join(map(str, tasks))


def show_owner(client: ApiClient) -> None:
    """Print the owner among the meta servers. Raises CliError."""
    documents.show(client.call("GET", "/v1/owner"))
