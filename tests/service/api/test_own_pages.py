"""An API without auth in reach of a browser: its own page is answered, and no other."""
# Attack: pages of other sites, and DNS rebinding, at an API without auth: 403

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from support import plain_http
from support.http_world import Server
from support.token_world import Platform, platform_in
from tistream_api.auth.browser_guard import refusal

HOST = "127.0.0.1:8000"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": HOST},
        {"host": "localhost:8000"},
        {"host": "LOCALHOST"},
        {"host": "localhost.:8000"},
        {"host": "api.localhost:8000"},
        {"host": "[::1]:8000"},
        {"host": "127.9.9.9"},
        {"host": "box:8000"},
        {"host": "Box."},
        {"host": HOST, "sec-fetch-site": "same-origin", "origin": f"http://{HOST}"},
        {"host": HOST, "sec-fetch-site": "none"},
        {"host": "LocalHost:8000", "origin": "http://localhost:8000"},
    ],
)
def test_commands_and_the_own_page_are_answered(headers: dict[str, str]) -> None:
    assert refusal(headers, "box") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "[2001:db8::5]:8000"},
        {"host": HOST, "sec-fetch-site": "cross-site"},
        {"host": HOST, "sec-fetch-site": "same-site"},
        {"host": HOST, "origin": "https://else.example"},
        {"host": HOST, "origin": "null"},
        {"host": HOST, "origin": ""},
        {"host": HOST, "origin": "http://127.0.0.1:3000"},
        {"host": HOST, "origin": f"http://{HOST}.else.example"},
        {"host": HOST, "origin": f"http://else.example/{HOST}"},
        {"host": "else.example"},
        {"host": "tistream-api:8000"},
        {"host": "else"},
        {"host": "boxes"},
        {"host": "box.else"},
        {"host": ":8000"},
        {"host": "else.example.:8000"},
        {"host": "127.0.0.1.else.example:8000"},
        {"host": "localhost.else.example", "origin": "http://localhost.else.example", "sec-fetch-site": "same-origin"},
        {"host": "10.0.0.5:8000"},
        {"host": "[::ffff:10.0.0.5]:8000"},
        {"host": "[else.example"},
    ],
)
def test_pages_of_other_sites_and_names_that_may_be_theirs_are_not(headers: dict[str, str]) -> None:
    told = refusal(headers, "box")
    assert told is not None
    assert "TISTREAM_API__AUTH=off" in told
    assert "127.0.0.1" in told


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("pages")) as one:
        yield one


@pytest.fixture(scope="module")
def open_api(platform: Platform) -> Iterator[Server]:
    one = platform.start_api(auth="off")
    yield one
    one.stop()


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://else.example"}, {"sec-fetch-site": "cross-site"}, {"host": "else.example"}, {"host": "else"}],
)
def test_an_open_api_does_nothing_for_another_site(open_api: Server, headers: dict[str, str]) -> None:
    """As a form or a script of any page can send it: no browser asks first whether it may."""
    text = {"content-type": "text/plain", **headers}
    with plain_http.client(base_url=open_api.url) as http:
        body = b'{"tenant_id": "planted"}'
        refused = http.post("/v1/clusters/7/tenants", content=body, headers=text)
        assert (refused.status_code, refused.json()["type"]) == (403, "tistream:forbidden")
        assert http.get("/v1/owner", headers=headers).status_code == 403
        own = {"origin": open_api.url, "sec-fetch-site": "same-origin"}
        assert http.post("/v1/clusters/7/tenants", content=b'{"tenant_id": "own"}', headers=own).status_code == 201
        tenants = http.get("/v1/clusters/7/tenants", headers=own).json()["tenants"]
        assert [tenant["tenant_id"] for tenant in tenants] == ["own"]


def test_an_open_api_is_this_machines_own(open_api: Server) -> None:
    headers = {"host": f"{socket.gethostname()}:8000"}
    answer = plain_http.get(f"{open_api.url}/v1/owner", headers=headers)
    assert answer.status_code == 200


def test_with_auth_the_token_decides_whatever_the_name(platform: Platform) -> None:
    """There a proxy in front has a name of its own, and no browser sends the token by itself."""
    headers = {
        "authorization": f"Bearer {platform.token()}",
        "host": "tistream.example",
        "sec-fetch-site": "cross-site",
    }
    answer = plain_http.get(f"{platform.api.url}/v1/owner", headers=headers)
    assert answer.status_code == 200


def test_the_log_says_that_nobody_is_asked_for_a_token(platform: Platform, caplog: pytest.LogCaptureFixture) -> None:
    for auth, lines in (("off", 1), ("on", 0)):
        caplog.clear()
        platform.start_api(auth=auth).stop()
        told = [record for record in caplog.records if record.message.startswith("no authentication")]
        assert len(told) == lines
        assert all(record.levelname == "WARNING" for record in told)
