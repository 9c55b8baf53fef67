"""An issuer's keys, from a file and over https from a server of its own."""
# Attack: an issuer's keys over https with a foreign, expired or unknown certificate; an issuer that fails, hangs or
#   redirects

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.certificates import Authority, Certificates
from support.waiting import PATIENCE_S
from tistream.errors import TiStreamError, Unavailable
from tistream.service.settings import SettingsError
from tistream_api.auth import key_set
from tistream_api.settings import OidcSettings

KEYS = b'{"keys": []}'


@dataclass
class Issuer:
    """Answers whoever asks; keeps what it was sent, and who vouched for whoever asked."""

    url: str = ""
    status: int = 200
    elsewhere: str | None = None
    headers: list[dict[str, str]] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)


def issuing(shown: Certificates) -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.free.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.headers.append({name.lower(): value for name, value in self.headers.items()})
            issuer.free.wait(PATIENCE_S)
            self.send_response(issuer.status)
            if issuer.elsewhere is not None:
                self.send_header("location", issuer.elsewhere)
            self.send_header("content-length", str(len(KEYS)))
            self.end_headers()
            self.wfile.write(KEYS)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Who does not trust the certificate goes away: that is wanted."""

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert_file, shown.key_file)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    issuer.url = f"https://127.0.0.1:{server.server_address[1]}/keys"
    yield issuer
    issuer.free.set()
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE_S)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
def issuer(authority: Authority) -> Iterator[Issuer]:
    yield from issuing(authority.sign("issuer"))


def asked(**where: object) -> bytes:
    settings = OidcSettings(issuer="https://issuer", audience="us", **where)  # type: ignore[arg-type]
    return key_set.reader(settings)()


def test_keys_come_from_the_issuer_that_the_authority_vouches_for(authority: Authority, issuer: Issuer) -> None:
    assert asked(jwks_url=issuer.url, jwks_ca_file=authority.file) == KEYS


def test_the_issuer_is_shown_nothing_of_ours(authority: Authority, issuer: Issuer) -> None:
    asked(jwks_url=issuer.url, jwks_ca_file=authority.file)
    [headers] = issuer.headers
    assert headers.keys() <= {"host", "accept", "accept-encoding", "connection", "user-agent"}


def test_an_issuer_of_another_authority_is_not_asked(tmp_path: Path, issuer: Issuer) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "authority")
    with pytest.raises(Unavailable, match="certificate"):
        asked(jwks_url=issuer.url, jwks_ca_file=stranger.file)
    assert issuer.headers == []


def test_a_private_issuer_is_not_trusted_by_itself(issuer: Issuer) -> None:
    with pytest.raises(Unavailable, match="certificate"):
        asked(jwks_url=issuer.url)
    assert issuer.headers == []


def test_an_issuer_whose_certificate_has_expired_is_not_asked(authority: Authority) -> None:
    for issuer in issuing(authority.sign("late", expired=True)):
        with pytest.raises(Unavailable, match="expired"):
            asked(jwks_url=issuer.url, jwks_ca_file=authority.file)
        assert issuer.headers == []


def test_an_issuer_that_fails_or_hangs_is_told_as_such(
    authority: Authority, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.status = 500
    with pytest.raises(TiStreamError, match="500"):
        asked(jwks_url=issuer.url, jwks_ca_file=authority.file)
    monkeypatch.setattr(key_set, "DEADLINE_S", 0.2)
    issuer.free.clear()
    with pytest.raises(Unavailable, match=issuer.url):
        asked(jwks_url=issuer.url, jwks_ca_file=authority.file)


def test_nobody_is_followed_elsewhere(authority: Authority, issuer: Issuer) -> None:
    issuer.status, issuer.elsewhere = 302, issuer.url + "/others"
    asked(jwks_url=issuer.url, jwks_ca_file=authority.file)
    assert len(issuer.headers) == 1


def test_whom_to_trust_must_be_there(tmp_path: Path) -> None:
    for wrong in ("absent.crt", "empty.crt"):
        file = tmp_path / wrong
        if wrong == "empty.crt":
            file.write_bytes(b"no certificate")
        with pytest.raises(SettingsError, match=rf"JWKS_CA_FILE.*{wrong}"):
            asked(jwks_url="https://issuer/keys", jwks_ca_file=file)


def test_keys_of_a_file_are_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    read = key_set.reader(OidcSettings(issuer="https://issuer", audience="us", jwks_file=file))
    with pytest.raises(Unavailable, match=r"keys\.json"):
        read()
    for content in (b"1", b"2"):
        file.write_bytes(content)
        assert read() == content
