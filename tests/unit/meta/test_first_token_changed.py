"""Another first token, as docs/operations/keys.md has the steps (Another first token)."""

from __future__ import annotations

from pathlib import Path

from support.in_process import AppClient
from support.meta_database import database_url
from tistream.clock import ManualClock
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_meta.app import build_app
from tistream_meta.settings import MetaSettings

OLD, NEXT = "00000000000000aa", "00000000000000bb"


def started(folder: Path, token_id: str) -> AppClient:
    """A meta server that was started with a file that holds this token, and owns the database."""
    path = folder / "first.token"
    path.write_text(f"tst_{token_id}_{'F' * 43}")
    settings = MetaSettings(database_url=database_url(folder), first_token_file=path, lease_ms=600_000)
    app = build_app(settings, MemoryObjectStore(), ManualClock(4_000_000_000_000))
    app.state.server.hold_lease()
    app.state.tokens.look()
    return AppClient(app)


def valid(meta: AppClient) -> set[str]:
    meta.app.state.tokens.look()
    return {one["token_id"] for one in meta.get("/upcall/v1/tokens").json()["tokens"]}


def test_both_are_taken_until_the_old_one_is_revoked_which_stays_so(tmp_path: Path) -> None:
    started(tmp_path, OLD)
    meta = started(tmp_path, NEXT)
    assert valid(meta) == {OLD, NEXT}
    assert {one["label"] for one in meta.get("/v1/tokens").json()["tokens"]} == {"first token"}
    assert meta.delete(f"/v1/tokens/{OLD}").status_code == 200
    assert valid(meta) == {NEXT}
    assert valid(started(tmp_path, OLD)) == {NEXT}, "a meta server that starts with the old file changes nothing"
    entries = meta.get("/v1/audit").json()["entries"]
    assert [(one["action"], one["subject"]) for one in entries] == [
        ("KeepFirstToken", f"token {OLD}"),
        ("KeepFirstToken", f"token {NEXT}"),
        ("RevokeToken", f"token {OLD}"),
    ]
