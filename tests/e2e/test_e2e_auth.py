"""`tistream up --auth`: nobody is let in without a token, and every command works with one."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from support import golden, plain_http
from support.command import patient_command
from support.platform import Platform
from support.waiting import eventually

SET = golden.load_as("large", "9", "auth")
CLUSTER, TENANT = SET.tenant.cluster_id, SET.tenant.tenant_id


def tistream(platform: Platform, *arguments: str, token: Path | None, status: int = 0) -> str:
    shown = ["--token-file", str(token)] if token is not None else []
    done = patient_command(*shown, *arguments, "--url", platform.url)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_a_platform_with_auth_from_its_first_token_to_a_revoked_one(guarded: Platform, tmp_path: Path) -> None:
    platform = guarded
    first, reader = platform.data_dir / "secrets" / "first.token", tmp_path / "reader.token"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    of_tenant = ("--cluster", CLUSTER, "--tenant", TENANT)
    assert "needs a token" in tistream(platform, "tenant", "create", *of_tenant, token=None, status=1)
    eventually(lambda: plain_http.get(f"{platform.url}/v1/owner", headers=bearer(first)).status_code == 200)
    tistream(platform, "tenant", "create", *of_tenant, token=first)
    golden.push(SET.deliveries, platform.objects)
    grant = f"read:{CLUSTER}/{TENANT}/wide/small"
    made = tistream(platform, "token", "create", "--grant", grant, "--out", str(reader), token=first)
    token_id = reader.read_text().split("_")[1]
    assert token_id in made
    assert reader.read_text().strip() not in made
    status = f"{platform.url}/v1/clusters/{CLUSTER}/tenants/{TENANT}/status"

    def caught_up() -> bool:
        answer = plain_http.get(status, headers=bearer(first))
        return answer.status_code == 200 and int(answer.json()["resolved_ts"]) >= SET.end_ts

    eventually(caught_up)
    eventually(lambda: plain_http.get(status, headers=bearer(reader)).status_code == 403)  # the API knows the token
    pulled = tistream(platform, "pull", *of_tenant, "--database", "wide", "--table", "small", token=reader)
    assert '"table":"small"' in pulled
    assert "does not grant" in tistream(platform, "pull", *of_tenant, token=reader, status=1)
    assert "does not grant" in tistream(platform, "node", "list", token=reader, status=1)
    tistream(platform, "token", "revoke", token_id, token=first)
    eventually(lambda: plain_http.get(status, headers=bearer(reader)).status_code == 401)
    assert "revoked" in tistream(platform, "token", "list", token=first)
    assert open_to_others(platform.data_dir) == []
    secrets = [path.read_text().strip().split("_", 2)[2] for path in (first, reader)]
    for log in [*platform.logs.glob("*"), *platform.data_dir.glob("*.stderr"), *platform.data_dir.glob("meta.db*")]:
        held = log.read_bytes()
        assert not any(secret.encode() in held for secret in secrets), log


def open_to_others(root: Path) -> list[str]:
    """What below the data directory, or itself, somebody else of this machine may do anything with."""
    found = []
    for path in [root, *root.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # temporary ones come and go
            mode = path.lstat().st_mode
            # What the test wrote there itself, as stores do and with `2>`, has the test's umask.
            own = "data_change_buffer" in path.parts or path.suffix == ".stderr"
            if mode & 0o077 and not own and not stat.S_ISLNK(mode):
                found.append(f"{stat.S_IMODE(mode):o} {path}")
    return found


def bearer(path: Path) -> dict[str, str]:
    return {"authorization": f"Bearer {path.read_text().strip()}"}
