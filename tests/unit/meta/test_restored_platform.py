"""A meta database that is restored from a backup, on a platform with tokens and tenants' keys: what
docs/operations/upgrade-backup.md says of it (Backup and restore), and its steps."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from support.audit_world import World

STOLEN, KEPT, LATER = "00000000000000aa", "00000000000000bb", "00000000000000cc"
WEEK, MONTH = "604800000", "2592000000"


def token(token_id: str) -> dict[str, Any]:
    return {
        "token_id": token_id,
        "secret_hash": token_id * 4,
        "label": f"of {token_id}",
        "grants": [{"actions": ["read"], "cluster": "7", "tenant": "acme"}],
    }


class Platform:
    """A meta server whose database is backed up and restored as an operator does it: with the server stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database, self.copy = folder / "meta.db", folder / "backup.db"
        self.meta = World(folder)

    def back_up(self) -> None:
        with sqlite3.connect(self.database) as live, sqlite3.connect(self.copy) as copy:
            live.backup(copy)
        live.close()
        copy.close()

    def restore(self) -> None:
        self.meta.repository.close()
        for path in self.folder.glob("meta.db*"):
            path.unlink()
        shutil.copy(self.copy, self.database)
        self.meta = World(self.folder)

    def put(self, path: str, body: Any) -> None:
        self.meta.ask("PUT", f"/v1/clusters/7/tenants/acme/{path}", body)

    def tenants(self) -> dict[str, tuple[Any, ...]]:
        found = self.meta.ask("GET", "/v1/clusters/7/tenants")["tenants"]
        return {one["tenant_id"]: (one["retention_ms"], one["kms_key_id"]) for one in found}

    def tokens(self, known_version: int = -1) -> tuple[int, set[str]]:
        """(version, ids) as an API server is told them that knows that version."""
        self.meta.app.state.tokens.look()
        told = self.meta.ask("GET", f"/upcall/v1/tokens?known_version={known_version}")
        return told["version"], {one["token_id"] for one in told["tokens"]}

    def route_key(self) -> Any:
        """What each service is told that acme's objects are to be encrypted with."""
        self.meta.server.look_after_nodes()
        [route] = [one for one in self.meta.ask("GET", "/upcall/v1/routes")["tenants"] if one["tenant_id"] == "acme"]
        return route["kms_key_id"]


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    """With a backup, and changes since."""
    one = Platform(tmp_path)
    one.meta.tenant("acme")
    one.put("retention", {"retention_ms": WEEK})
    one.put("encryption", {"kms_key_id": "arn:key/1"})
    one.meta.ask("POST", "/v1/tokens", token(STOLEN))
    one.meta.ask("POST", "/v1/tokens", token(KEPT))
    one.back_up()
    one.put("retention", {"retention_ms": MONTH})
    one.put("encryption", {"kms_key_id": "arn:key/2"})
    one.meta.ask("DELETE", f"/v1/tokens/{STOLEN}")
    one.meta.ask("POST", "/v1/tokens", token(LATER))
    one.meta.tenant("new")
    return one


def test_what_nobody_but_the_database_has_is_as_it_was_when_the_backup_was_made(platform: Platform) -> None:
    assert platform.tokens()[1] == {KEPT, LATER}
    platform.restore()
    assert platform.tenants() == {"acme": (WEEK, "arn:key/1")}
    assert platform.tokens()[1] == {STOLEN, KEPT}, "a token that was revoked since is valid again"
    assert platform.route_key() == "arn:key/1"


def test_with_a_copy_of_the_audit_log_all_that_was_forgotten_can_be_done_again(platform: Platform) -> None:
    before = platform.tenants(), platform.tokens()[1], platform.route_key()
    copy = platform.meta.entries(after=0, limit=1000)
    platform.restore()
    newest = platform.meta.ask("GET", "/v1/audit?limit=1")["newest_seq"]
    forgotten = [entry for entry in copy if entry["seq"] > newest]
    assert [entry["action"] for entry in forgotten] == [
        "SetRetention",
        "SetEncryption",
        "RevokeToken",
        "CreateToken",
        "Unnamed",
    ]
    assert [entry["subject"] for entry in forgotten[-3:]] == [f"token {STOLEN}", f"token {LATER}", "tenant 7/new"]
    platform.put("retention", {"retention_ms": str(forgotten[0]["became"]["retention_ms"])})
    platform.put("encryption", forgotten[1]["became"])
    platform.meta.ask("DELETE", f"/v1/tokens/{STOLEN}")
    platform.meta.ask("POST", "/v1/tokens", token(LATER))
    platform.meta.tenant("new")
    assert (platform.tenants(), platform.tokens()[1], platform.route_key()) == before


def test_an_api_server_that_was_away_meanwhile_does_not_take_the_tokens_that_it_knows_for_the_present_ones(
    platform: Platform,
) -> None:
    """It asks for what has changed since a version; after the restore as many tokens have changed as before it."""
    known_version, known = platform.tokens()
    platform.restore()
    platform.meta.ask("DELETE", f"/v1/tokens/{KEPT}")
    platform.meta.ask("DELETE", f"/v1/tokens/{STOLEN}")
    version, valid = platform.tokens(known_version)
    assert valid == set()
    assert known == {KEPT, LATER}
    assert version != known_version, "it would go on to let in the two that it knows"
