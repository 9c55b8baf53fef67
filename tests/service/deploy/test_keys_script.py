"""scripts/keys: what it makes is what the services take, now and after it has made it anew."""

from __future__ import annotations

import re
import shutil
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from support.manifests import ROOT
from support.not_run import not_run
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.secrets.sealing import opened, private_keys, public_key, seal
from tistream.service.http.peer_clients import PeerClients
from tistream.service.settings import ServiceSettings, settings_config
from tistream.wire.auth.service_token import parse_keys


class ThingSettings(ServiceSettings):
    model_config = settings_config("THING")


def keys(*arguments: str | Path) -> None:
    if shutil.which("openssl") is None:
        not_run("no openssl")
    done = subprocess.run([ROOT / "scripts" / "keys", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def names(folder: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in found}


def test_services_take_what_it_makes_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    keys(folder, "api.example.com", "10.1.2.3", "fd00::7")
    assert {"tistream", "localhost", "127.0.0.1", "::1", "api.example.com", "10.1.2.3", "fd00::7"} == names(folder)
    tls = {"cert_file": "tls.crt", "key_file": "tls.key", "ca_file": "ca.crt", "client_ca_file": "ca.crt"}
    settings = ThingSettings(
        host="0.0.0.0",
        service_key_file=folder / "service.key",
        metrics_token_file=folder / "metrics.token",
        tls={name: folder / file for name, file in tls.items()},  # type: ignore[arg-type]
    )
    peers = PeerClients(settings, SystemClock())
    assert peers.guard is not None
    assert peers.auth is not None
    assert peers.guard.refusal("/v1/tasks", peers.auth()) is None
    scraped = f"Bearer {(folder / 'metrics.token').read_text().strip()}"
    assert peers.guard.refusal("/metrics", scraped) is None
    assert peers.guard.refusal("/v1/tasks", scraped) is not None
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    files = (
        "service.key",
        "metrics.token",
        "first.token",
        "tls.crt",
        "tls.key",
        "ca.crt",
        "secrets.key",
        "secrets.pub",
    )
    assert modes == dict.fromkeys(files, 0o600)
    assert re.fullmatch(r"tst_[0-9a-f]{16}_[A-Za-z0-9_-]{43}\n", (folder / "first.token").read_text())


def test_what_the_public_key_of_secrets_seals_the_private_one_opens(tmp_path: Path) -> None:
    keys(tmp_path)
    tenant = TenantKey("7", "acme")
    sealed = seal(public_key((tmp_path / "secrets.pub").read_text()), tenant, "kafka", "hunter2")
    assert opened(private_keys((tmp_path / "secrets.key").read_text()), tenant, "kafka", sealed) == "hunter2"


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    keys(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    keys(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_prometheus_may_read_all_but_the_key_of_the_services(tmp_path: Path) -> None:
    keys("-g", tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert [modes.pop(name) for name in ("service.key", "secrets.key", "first.token")] == [0o600] * 3
    assert set(modes.values()) == {0o640}


def test_a_key_is_changed_in_two_steps(tmp_path: Path) -> None:
    """Between them all services have both, and so no call is refused."""
    keys(tmp_path)
    [first] = parse_keys((tmp_path / "service.key").read_text())
    keys("-s", tmp_path)
    signs, taken = parse_keys((tmp_path / "service.key").read_text())
    assert signs == first
    keys("-S", tmp_path)
    assert parse_keys((tmp_path / "service.key").read_text()) == (taken, first)


def test_a_new_certificate_comes_with_its_authority_and_the_former_one_is_still_trusted(tmp_path: Path) -> None:
    keys(tmp_path)
    former = (tmp_path / "ca.crt").read_text()
    keys("-t", tmp_path, "later.example.com")
    assert "later.example.com" in names(tmp_path)
    both = (tmp_path / "ca.crt").read_text()
    assert both.endswith(former)
    assert len(ssl.create_default_context(cafile=tmp_path / "ca.crt").get_ca_certs()) == 2
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(both.removesuffix(former).encode()))


@pytest.mark.parametrize("namespace", ["tistream", "elsewhere"])
def test_names_of_a_namespace(tmp_path: Path, namespace: str) -> None:
    keys("-n", namespace, tmp_path)
    found = names(tmp_path)
    for service in ("meta", "schema", "dispatcher", "sorter", "ingest", "agent", "api-pods"):
        assert {f"*.tistream-{service}.{namespace}.svc", f"tistream-{service}.{namespace}.svc"} <= found
    assert {f"tistream-api.{namespace}.svc", f"tistream-api.{namespace}", "tistream-api"} <= found


def test_the_authoritys_key_is_nowhere(tmp_path: Path) -> None:
    """Who has it can make himself a service: it is thrown away."""
    keys(tmp_path)
    private = [path.name for path in tmp_path.rglob("*") if b"PRIVATE" in path.read_bytes()]
    assert private == ["tls.key"]
    key = load_pem_private_key((tmp_path / "tls.key").read_bytes(), None)
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    assert key.public_key() == certificate.public_key()
