"""The whole platform over mutual TLS, services proving themselves by token: it works, and nobody else gets in."""
# Attack: the platform over mutual TLS, with strangers at each port

from __future__ import annotations

import base64
import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from support import golden
from support.certificates import Authority, Certificates
from support.compare import shown, tenant_differences
from support.platform import COMMAND
from support.pull import Consumer
from support.services import Services, service_of
from support.waiting import PATIENCE_S, awaited, eventually
from tistream.clock import SystemClock
from tistream.wire.auth.service_token import Caller, sign
from tistream_client.cli.errors import AGAIN


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Authority(tmp_path_factory.mktemp("keys"), "authority").sign("service")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Services]:
    services = Services(tmp_path_factory.mktemp("services"), ranges=2, certificates=certificates)
    try:
        yield services.start()
        services.stop()
    except BaseException:
        print(services.report())
        raise
    finally:
        services.close()


def command(up: Services, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`tistream ARGUMENTS`, as a user starts it, and again while it says so."""
    given = {**os.environ, "TISTREAM_URL": up.url, **environ}

    def done() -> subprocess.CompletedProcess[str] | None:
        ended = subprocess.run(
            [COMMAND, *arguments], env=given, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        return None if ended.returncode == AGAIN else ended

    ended = awaited(done)
    assert ended is not None
    return ended


def refused(up: Services, name: str, path: str, shown: httpx.Client, headers: Mapping[str, str] | None = None) -> str:
    """How a request to a service ends: "tls" before it was read, else its status."""
    try:
        return str(shown.get(f"{up.url_of(name)}{path}", headers=headers).status_code)
    except httpx.TransportError:
        return "tls"


def test_what_is_pulled_is_what_tidb_wrote(up: Services, certificates: Certificates) -> None:
    loaded = golden.load("large")
    golden.put(up.objects, loaded.schema_snap)
    trusting = httpx.Client(timeout=PATIENCE_S, verify=certificates.trusting_context(), trust_env=False)
    key = loaded.tenant
    made = command(
        up, "--ca-file", str(certificates.authority.file), "tenant", "create",
        "--cluster", key.cluster_id, "--tenant", key.tenant_id,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    golden.push(loaded.files, up.objects)
    consumer = Consumer(up.url, loaded.tenant, trusting)
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    assert not up.unexpected(), up.unexpected()


def test_who_is_no_service_gets_nowhere(up: Services, certificates: Certificates, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "authority").sign("service")
    strange = stranger.client_context()
    strange.load_verify_locations(certificates.authority.file)
    now_s = SystemClock().now_ms() // 1000
    forged = {"authorization": f"Bearer {sign(os.urandom(32), Caller('api-1', 'api'), now_s)}"}
    own, none, other = (
        httpx.Client(verify=context, trust_env=False, timeout=PATIENCE_S)
        for context in (certificates.client_context(), certificates.trusting_context(), strange)
    )
    for name in up.names():
        if service_of(name) == "api":
            continue
        for path in ("/v1/tasks", "/metrics", "/openapi.json", "/nowhere", "/healthz"):
            assert refused(up, name, path, none, up.service_headers()) == "tls", (name, path)
            assert refused(up, name, path, other, up.service_headers()) == "tls", (name, path)
            if path != "/healthz":
                assert refused(up, name, path, own) == "401", (name, path)
                assert refused(up, name, path, own, forged) == "401", (name, path)
        assert refused(up, name, "/metrics", own, up.service_headers()) == "200"
        plain = httpx.Client(trust_env=False, timeout=PATIENCE_S)
        with pytest.raises(httpx.TransportError):
            plain.get(up.url_of(name).replace("https", "http") + "/healthz")


def test_the_command_talks_to_whom_it_trusts_alone(up: Services, certificates: Certificates) -> None:
    trusted = command(up, "node", "list", TISTREAM_CA_FILE=str(certificates.authority.file))
    assert trusted.returncode == 0, trusted.stderr
    assert "sorter-1" in trusted.stdout
    blind = command(up, "node", "list")
    assert blind.returncode == 1
    assert "CERTIFICATE_VERIFY_FAILED" in blind.stderr
    missing = command(up, "--ca-file", "/nowhere/ca.crt", "node", "list")
    assert missing.returncode == 1
    assert "/nowhere/ca.crt" in missing.stderr


def test_a_command_in_a_services_container_calls_as_a_service(up: Services, certificates: Certificates) -> None:
    """As the preStop hooks do: at a meta server, with its certificate and its key."""
    environ = {
        "TISTREAM_URL": up.url_of("meta"),
        "TISTREAM_CA_FILE": str(certificates.authority.file),
        "TISTREAM_CERT_FILE": str(certificates.cert_file),
        "TISTREAM_KEY_FILE": str(certificates.key_file),
        "TISTREAM_SERVICE_KEY_FILE": str(up.data_dir / "secrets" / "service.key"),
    }
    served = command(up, "node", "list", **environ)
    assert served.returncode == 0, served.stderr
    assert "dispatcher-1" in served.stdout
    without_key = command(up, "node", "list", **{**environ, "TISTREAM_SERVICE_KEY_FILE": ""})
    assert without_key.returncode == 1
    assert "a token is needed" in without_key.stderr


def signed(key: str) -> dict[str, str]:
    """What a service sends that signs with this key."""
    token = sign(base64.b64decode(key), Caller("test", "test"), SystemClock().now_ms() // 1000)
    return {"authorization": f"Bearer {token}"}


def test_keys_are_changed_while_everything_runs(up: Services, certificates: Certificates) -> None:
    """First a key that is only taken, then it signs, then the former one is gone; and all the while tasks move on."""
    file = up.data_dir / "secrets" / "service.key"
    former, later = file.read_text().strip(), base64.b64encode(os.urandom(32)).decode()
    own = httpx.Client(verify=certificates.client_context(), trust_env=False, timeout=PATIENCE_S)
    trusted = str(certificates.authority.file)
    with_former = up.service_headers()
    for lines in ((former, later), (later, former), (later,)):
        fresh = file.with_suffix(".fresh")
        fresh.write_text("\n".join(lines) + "\n")
        os.replace(fresh, file)
        for name, key in itertools.product(up.names(), lines):
            if service_of(name) != "api":
                eventually(lambda name=name, key=key: refused(up, name, "/metrics", own, signed(key)) == "200")  # type: ignore[misc]
        if former in lines:  # what is gone while tokens of it are still sent is refused until they are signed anew
            assert command(up, "task", "list", TISTREAM_CA_FILE=trusted).returncode == 0
    eventually(lambda: command(up, "task", "list", TISTREAM_CA_FILE=trusted).returncode == 0)
    eventually(lambda: refused(up, "meta", "/v1/tasks", own, with_former) == "401")
