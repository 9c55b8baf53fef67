"""A meta server in this process, and what an operator may change there: whatever the audit log has to say of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import httpx

from support.in_process import AppClient
from support.meta_database import database_url
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.wire.tokens import hash_of
from tistream_meta.app import build_app
from tistream_meta.database.repository import Repository
from tistream_meta.owner.server import MetaServer
from tistream_meta.settings import MetaSettings

ACME = "/v1/clusters/7/tenants/acme"
HASH = hash_of("s" * 43)
TOKEN = {
    "token_id": "00000000000000aa",
    "secret_hash": HASH,
    "label": "of a job",
    "grants": [{"actions": ["read"], "cluster": "7", "tenant": "acme"}],
}
SHOWN_TOKEN = {
    "label": "of a job",
    "grants": [{"actions": ["read"], "cluster": "7", "tenant": "acme", "database": "*", "table": "*"}],
    "expires_ms": None,
    "revoked": False,
}
NEW_TENANT = {
    "retention_ms": None,
    "kms_key_id": None,
    "index_keys": None,
    "kind": "tidb",
    "paused": False,
    "delete_at_ms": None,
    "erasing": False,
    "quotas": {"requests_per_second": None},
}
BACKFILL = "backfill b1 of tenant 7/acme"
LOOK_AT_A_BUCKET = {"AddSource", "RemoveSource"}  # first; what the log has of it: tests/unit/meta/test_sources.py
RESTORES = {"CreateRestore", "CancelRestore"}  # what the log has of them: tests/unit/meta/test_restore_book.py
# What the log has of them: tests/unit/meta/test_feed_book.py, test_feed_changes.py, test_secret_book.py
FEEDS = {
    "CreateChangefeed",
    "UpdateChangefeed",
    "PauseChangefeed",
    "ResumeChangefeed",
    "RemoveChangefeed",
    "SkipEvent",
    "PutSecret",
    "RemoveSecret",
}
# What the log has of them: tests/unit/meta/test_territory_book.py
TERRITORIES = {"AddTerritory", "ReplaceTerritories", "RemoveTerritory"}
# What an operator may change, in an order in which each is possible, and what the log has of it: the action is the
# operation_id of the route. `...` stands for a value that is not foreseen.
CHANGES: dict[str, tuple[str, str, Any, list[tuple[str, Any, Any]]]] = {
    "SetRetention": (
        "PUT",
        f"{ACME}/retention",
        {"retention_ms": "604800000"},
        [("tenant 7/acme", {"retention_ms": None}, {"retention_ms": 604_800_000})],
    ),
    "SetEncryption": (
        "PUT",
        f"{ACME}/encryption",
        {"kms_key_id": "arn:aws:kms:eu-1:1:key/2"},
        [("tenant 7/acme", {"kms_key_id": None}, {"kms_key_id": "arn:aws:kms:eu-1:1:key/2"})],
    ),
    "SetQuotas": (
        "PUT",
        f"{ACME}/quotas",
        {"requests_per_second": 50},
        [("tenant 7/acme", {"quotas": ...}, {"quotas": ...})],
    ),
    "PauseTenant": (
        "PUT",
        f"{ACME}/pause",
        {"paused": True},
        [("tenant 7/acme", {"paused": False}, {"paused": True})],
    ),
    "DeleteTenant": (
        "PUT",
        f"{ACME}/deletion",
        {"confirm": "acme", "grace_ms": "86400000"},
        [("tenant 7/acme", {"delete_at_ms": None}, {"delete_at_ms": ...})],
    ),
    "KeepTenant": (
        "DELETE",
        f"{ACME}/deletion",
        None,
        [("tenant 7/acme", {"delete_at_ms": ...}, {"delete_at_ms": None})],
    ),
    "StartBackfill": (
        "POST",
        f"{ACME}/backfills",
        {"source": {"kind": "push"}, "tables": ["*.*"]},
        [(BACKFILL, None, {"kind": "push", "url": None, "tables": ["*.*"], "state": "running"})],
    ),
    "CancelBackfill": (
        "DELETE",
        f"{ACME}/backfills/b1",
        None,
        [(BACKFILL, {"state": "running"}, {"state": "cancelled"})],
    ),
    "CreateToken": ("POST", "/v1/tokens", TOKEN, [("token 00000000000000aa", None, SHOWN_TOKEN)]),
    "RevokeToken": (
        "DELETE",
        "/v1/tokens/00000000000000aa",
        None,
        [("token 00000000000000aa", {"revoked": False}, {"revoked": True})],
    ),
    "MoveTask": (
        "POST",
        "/v1/tasks/1/move",
        {"node_id": "sorter-2"},
        [("task 1", {"next_node": None}, {"next_node": "sorter-2"})],
    ),
    "SplitTask": (
        "POST",
        "/v1/tasks/2/split",
        {"key": "6e"},
        [("task 2", {"children": None}, {"children": [[6, "6d", "6e"], [7, "6e", "70"]]})],
    ),
    "MergeTasks": (
        "POST",
        "/v1/tasks/4/merge",
        {"neighbour": 5},
        [(f"task {one}", {"children": None}, {"children": [[8, "74", ""]]}) for one in (4, 5)],
    ),
    "DrainNode": (
        "POST",
        "/v1/nodes/sorter-2/drain",
        {"draining": True},
        [("node sorter-2", {"draining": False}, {"draining": True})],
    ),
    "CreateTenant": (
        "POST",
        "/v1/clusters/7/tenants",
        {"tenant_id": "new"},
        [("tenant 7/new", None, dict.fromkeys(NEW_TENANT, ...))],
    ),
}


class Encrypting(MemoryObjectStore):
    """An object store that accepts keys of tenants."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = TenantKeys()


class Through(httpx.BaseTransport):
    """An HTTP transport to the meta server in this process."""

    def __init__(self, meta: httpx.Client) -> None:
        self._meta = meta

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        answer = self._meta.request(
            request.method, str(request.url), content=request.read(), headers=headers, follow_redirects=False
        )
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


class World:
    """A meta server that owns its database, with a tenant whose tasks run at one sorter, and another sorter."""

    def __init__(self, folder: Path) -> None:
        settings = MetaSettings(database_url=database_url(folder), node_id="meta-1", lease_ms=600_000)
        self.clock = ManualClock(4_000_000_000_000)
        self.objects = Encrypting()
        self.app = build_app(settings, self.objects, self.clock)
        self.client = AppClient(self.app, "10.9.8.7")
        self.server: MetaServer = self.app.state.server
        self.repository: Repository = self.server.tenant_rules.repository
        self.server.hold_lease()
        self.server.hold_lease()
        self.sequence = 0

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = self.client.request(method, path, json=body, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def entries(self, **asked: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get("/v1/audit", params=asked).json()["entries"]
        return found

    def tenant(self, name: str, *spans: KeySpan) -> None:
        key = TenantKey("7", name)
        self.server.tenant_rules.create(key)
        self.server.write(lambda: self.repository.activate(key, 42, spans or [WHOLE]))

    def beat(self) -> None:
        """Send a heartbeat of each sorter with the tasks that it holds."""
        for node, start in (("sorter-1", 1), ("sorter-2", 2)):
            self.sequence += 1
            held = [
                {"task_id": task["task_id"], "task_epoch": task["task_epoch"], "progress_ts": 1 << 50}
                for task in self.ask("GET", "/v1/tasks")["tasks"]
                if task["sorter_node"] == node
            ]
            told = {"instance": node, "start_epoch": start, "sequence": self.sequence, "tasks": held}
            self.ask("POST", f"/upcall/v1/nodes/{node}/heartbeat", told | {"owner_rev": 0, "route_version": 0})

    def ready_to_change(self) -> None:
        """Prepare the world so that every change in CHANGES is possible."""
        self.sorters()
        cuts = [b"", b"m", b"p", b"t", b"z", b""]
        self.tenant("acme", *[KeySpan(start, end) for start, end in itertools.pairwise(cuts)])
        for _ in range(3):
            self.server.look_after_nodes()
            self.beat()

    def sorters(self) -> None:
        for node, start in (("sorter-1", 1), ("sorter-2", 2)):
            told = {"role": "sorter", "url": f"http://{node}", "instance": node, "start_epoch": start}
            self.ask("PUT", f"/upcall/v1/nodes/{node}", told)


def matches(found: Any, expected: Any) -> bool:
    """Whether a value equals the expected one, where `...` matches anything."""
    if expected is ...:
        return True
    if isinstance(expected, list | tuple) and isinstance(found, list):
        return len(found) == len(expected) and all(map(matches, found, expected))
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(matches(found[name], expected[name]) for name in expected)
    return bool(found == expected)
