"""TLS with real certificates, on real sockets: who is let in, who is not, and certificates that change."""
# Attack: wrong, expired and foreign certificates on both sides, plain HTTP, TLS 1.1; certificates replaced at run
#   time

from __future__ import annotations

import base64
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel

from support.certificates import Authority, Certificates
from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.concurrency import start_thread
from tistream.errors import Unavailable
from tistream.service.http import serve as serving
from tistream.service.http.app import new_app
from tistream.service.http.peer_clients import PeerClients
from tistream.service.observe.metrics import new_registry
from tistream.service.settings import ServiceSettings, SettingsError, TlsSettings, settings_config


class EchoSettings(ServiceSettings):
    model_config = settings_config("ECHO")


class Echo(BaseModel):
    said: str


@dataclass
class Made:
    """Certificates of one authority, and of a stranger that has the same name."""

    folder: Path
    own: Certificates
    other: Certificates
    expired: Certificates
    elsewhere: Certificates
    renewed: Certificates  # of an authority that follows the first


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, strange = tmp_path_factory.mktemp("own"), tmp_path_factory.mktemp("other")
    authority = Authority(folder, "authority")
    return Made(
        folder,
        authority.sign("service"),
        Authority(strange, "authority").sign("service"),
        authority.sign("expired", expired=True),
        authority.sign("elsewhere", address="10.9.9.9"),
        Authority(folder, "authority-2").sign("service-2"),
    )


def tls_of(shown: Certificates, trusted: Certificates | None = None, *, mutual: bool = False) -> TlsSettings:
    authority = (trusted or shown).authority.file
    return TlsSettings(
        cert_file=shown.cert_file,
        key_file=shown.key_file,
        ca_file=authority,
        client_ca_file=authority if mutual else None,
    )


class _Server(serving._Server):
    """Its signals are the test's own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, tls: TlsSettings, **settings: object) -> Iterator[str]:
    """An echo service as `serve` runs it; its URL."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        own = EchoSettings(port=port, listen_fd=os.dup(listening.fileno()), tls=tls, **settings)
    peers = PeerClients(own, SystemClock())
    app = new_app("echo", ready=lambda: None, registry=new_registry(), peers=peers)

    @app.get("/echo")
    def echo(said: str) -> Echo:
        return Echo(said=said)

    servers: list[_Server] = []

    def new_server(*arguments: object) -> _Server:
        servers.append(_Server(*arguments))  # type: ignore[arg-type]
        return servers[-1]

    monkeypatch.setattr(serving, "_Server", new_server)
    monkeypatch.setattr(serving, "_SECONDS_A_LOOK", 1)
    thread = start_thread("echo", lambda: serving.serve(app, own))
    try:
        eventually(lambda: servers and servers[0].started)
        yield f"{'https' if tls.serves else 'http'}://127.0.0.1:{port}"
    finally:
        servers[0].should_exit = True
        thread.join(PATIENCE_S)


def ask(url: str, tls: TlsSettings, **settings: object) -> str:
    """One call as a peer makes it. Raises Unavailable."""
    http = PeerClients(EchoSettings(tls=tls, **settings), SystemClock()).new_http(deadline_s=PATIENCE_S)
    try:
        return http.get(f"{url}/echo", Echo, {"said": "hello"}).said
    finally:
        http.close()


def test_who_trusts_the_authority_is_answered(monkeypatch: pytest.MonkeyPatch, made: Made) -> None:
    with served(monkeypatch, tls_of(made.own)) as url:
        assert ask(url, TlsSettings(ca_file=made.own.authority.file)) == "hello"
        assert ask(url, tls_of(made.own)) == "hello"
        for wrong in (TlsSettings(ca_file=made.other.authority.file), TlsSettings()):
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                ask(url, wrong)


@pytest.mark.parametrize("which", ["expired", "elsewhere", "other"])
def test_a_server_that_shows_a_wrong_certificate_is_not_talked_to(
    monkeypatch: pytest.MonkeyPatch, made: Made, which: str
) -> None:
    shown = getattr(made, which)
    with (
        served(monkeypatch, tls_of(shown)) as url,
        pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        ask(url, TlsSettings(ca_file=made.own.authority.file))


def test_with_mutual_tls_only_who_shows_a_certificate_of_the_authority_is_answered(
    monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    trusted = made.own.authority.file
    with served(monkeypatch, tls_of(made.own, mutual=True)) as url:
        assert ask(url, tls_of(made.own)) == "hello"
        assert ask(url, tls_of(made.elsewhere)) == "hello"  # a client is no address
        wrong = (
            TlsSettings(ca_file=trusted),
            TlsSettings(ca_file=trusted, cert_file=made.other.cert_file, key_file=made.other.key_file),
            TlsSettings(ca_file=trusted, cert_file=made.expired.cert_file, key_file=made.expired.key_file),
        )
        for tls in wrong:
            with pytest.raises(Unavailable):
                ask(url, tls)
        # The probes too: TLS comes before any path.
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/healthz", verify=made.own.trusting_context(), trust_env=False, timeout=PATIENCE_S)


def test_a_token_is_wanted_besides_the_certificate(monkeypatch: pytest.MonkeyPatch, made: Made, tmp_path: Path) -> None:
    keys = tmp_path / "service.key"
    keys.write_bytes(base64.b64encode(os.urandom(32)))
    with served(monkeypatch, tls_of(made.own, mutual=True), service_key_file=keys) as url:
        assert ask(url, tls_of(made.own), service_key_file=keys) == "hello"
        other = tmp_path / "other.key"
        other.write_bytes(base64.b64encode(os.urandom(32)))
        with pytest.raises(Unavailable, match="a key that is not known"):
            ask(url, tls_of(made.own), service_key_file=other)


def test_a_plain_client_and_an_old_protocol_are_refused(monkeypatch: pytest.MonkeyPatch, made: Made) -> None:
    with served(monkeypatch, tls_of(made.own)) as url:
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http") + "/healthz", trust_env=False, timeout=PATIENCE_S)
        port = int(url.rpartition(":")[2])
        for version, taken in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(made.own.authority.file)
            context.set_ciphers("DEFAULT@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
            with socket.create_connection(("127.0.0.1", port)) as plain:
                try:
                    context.wrap_socket(plain, server_hostname="127.0.0.1").close()
                    spoken = True
                except ssl.SSLError:
                    spoken = False
            assert spoken is taken, version


def test_a_plain_server_is_not_talked_to_by_https(monkeypatch: pytest.MonkeyPatch, made: Made) -> None:
    with served(monkeypatch, TlsSettings()) as url, pytest.raises(Unavailable):
        ask(url.replace("http", "https"), tls_of(made.own))


def test_certificates_that_change_are_served_and_trusted_without_a_restart(
    monkeypatch: pytest.MonkeyPatch, made: Made, tmp_path: Path
) -> None:
    cert, key, trusted = tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt"

    def put(shown: Certificates, *authorities: Certificates) -> None:
        for path, text in (
            (key, shown.key_file.read_text()),
            (cert, shown.cert_file.read_text()),
            (trusted, "".join(one.authority.file.read_text() for one in authorities)),
        ):
            fresh = path.with_suffix(".fresh")
            fresh.write_text(text)
            os.replace(fresh, path)

    put(made.own, made.own)
    tls = TlsSettings(cert_file=cert, key_file=key, ca_file=trusted, client_ca_file=trusted)
    with served(monkeypatch, tls) as url:
        assert ask(url, tls_of(made.own)) == "hello"
        client = PeerClients(EchoSettings(tls=tls), SystemClock())  # was there before
        put(made.renewed, made.renewed, made.own)

        def answered() -> bool:
            try:
                return ask(url, tls_of(made.renewed)) == "hello"
            except Unavailable:
                return False

        eventually(answered)
        client.certificates.look()
        http = client.new_http()
        assert http.get(f"{url}/echo", Echo, {"said": "again"}).said == "again"
        http.close()
        cert.write_text("half a certif")
        client.certificates.look()  # logged, and nothing is lost
        assert ask(url, tls_of(made.renewed)) == "hello"


def test_files_that_are_of_no_use_are_told(made: Made, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for tls in (
        TlsSettings(ca_file=nowhere),
        TlsSettings(cert_file=nowhere, key_file=made.own.key_file),
        TlsSettings(cert_file=made.own.cert_file, key_file=made.other.key_file),
        TlsSettings(cert_file=made.own.key_file, key_file=made.own.key_file),
    ):
        with pytest.raises(SettingsError, match="certificates of echo cannot be used"):
            PeerClients(EchoSettings(tls=tls), SystemClock())


HEALTHY = Path(__file__).parents[3] / "deploy" / "docker" / "healthy.py"


@pytest.mark.parametrize("mutual", [False, True])
def test_the_images_probe_is_answered_inside_the_container(
    monkeypatch: pytest.MonkeyPatch, made: Made, mutual: bool
) -> None:
    tls = tls_of(made.own, mutual=mutual)

    def probe(url: str, *arguments: str, **files: Path | None) -> int:
        own = {"PORT": url.rpartition(":")[2], **{name: str(path) for name, path in files.items()}}
        environ = {**os.environ, **{f"TISTREAM_ECHO__{name}": value for name, value in own.items()}}
        command = [sys.executable, "-I", "-S", HEALTHY, *arguments]
        return subprocess.run(command, env=environ, capture_output=True, check=False, timeout=PATIENCE_S).returncode

    with served(monkeypatch, tls) as url:
        shown = {"TLS__CERT_FILE": tls.cert_file, "TLS__KEY_FILE": tls.key_file}
        for path in (("/healthz",), ()):  # a probe gives up after four seconds
            eventually(lambda path=path: probe(url, *path, **shown) == 0)
        assert probe(url, "/nowhere", **shown) == 1
        assert probe(url, "/healthz") == 1
    assert probe(url, "/healthz", **shown) == 1
    with served(monkeypatch, TlsSettings()) as url:
        eventually(lambda: probe(url, "/healthz") == 0)
