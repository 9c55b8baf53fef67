"""`tistream pull` against a server that goes away in the middle: every event once, in order."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.platform import free_port
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError
from tistream_client.cli.pull.format import PullRequest
from tistream_client.cli.pull.pull import pull

EVENTS = 12


def answer(after: int, events: int) -> bytes:
    """`events` events after number `after`, with a resolved behind every third of all, cut without an end."""
    lines = []
    for number in range(after + 1, min(after + events, EVENTS) + 1):
        lines.append(json.dumps({"type": "row", "n": number}, separators=(",", ":")))
        if number % 3 == 0:
            lines.append(json.dumps({"type": "resolved", "resolved_ts": str(number), "cursor": f"c{number}"}))
    if not lines:
        lines.append(json.dumps({"type": "resolved", "resolved_ts": str(after), "cursor": f"c{after}"}))
    body = "".join(line + "\n" for line in lines).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + f"{len(body):x}\r\n".encode() + body + b"\r\n"


LAST = b"0\r\n\r\n"  # the end of an answer in chunks


@contextmanager
def serving(lengths: list[int], ends: int = 0) -> Iterator[str]:
    """A server whose answers break off after these numbers of events. The last `ends` answers end in order; then it is
    gone."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for number, length in enumerate(lengths):
            connection, _ = listening.accept()
            with connection:
                target = connection.recv(65_536).split(b" ")[1].decode()
                after = int(target.split("cursor=c")[1].split("&")[0]) if "cursor=c" in target else 0
                connection.sendall(answer(after, length) + (LAST if number >= len(lengths) - ends else b""))
        listening.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.close()


@pytest.fixture
def flaky() -> Iterator[str]:
    """A server whose answers break off after 1, 5, 2, 4 … events."""
    with serving([1, 5, 2, 4, 7]) as url:
        yield url


def test_a_follow_goes_on_where_it_was(flaky: str) -> None:
    told = []
    for line, _ in pull(ApiClient(flaky), PullRequest("7", "a", start_ts="1", follow=True), sleep=lambda _: None):
        event = json.loads(line)
        if event["type"] == "row":
            told.append(event["n"])
        if event.get("resolved_ts") == str(EVENTS):
            break
    assert told == list(range(1, EVENTS + 1))


def test_a_follow_waits_for_a_server_that_cannot_serve_yet() -> None:
    """After a start pulls are refused until the tenant's snapshot is there."""
    detail = b'{"type":"tistream:unavailable","status":503,"detail":"no snapshot yet"}'
    refused = b"HTTP/1.1 503 Later\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(detail)
    answers, said = [refused + detail, refused + detail, answer(0, EVENTS)], []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for text in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(text)

        threading.Thread(target=serve, daemon=True).start()
        client = ApiClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
        lines = pull(client, PullRequest("7", "a", start_ts="1", follow=True), sleep=lambda _: None, say=said.append)
        assert json.loads(next(lines)[0]) == {"type": "row", "n": 1}
        lines.close()
    assert len(said) == 1, "the same reason is told once"
    assert "no snapshot yet" in said[0]


def test_a_pull_that_does_not_follow_is_refused_at_once() -> None:
    refused = b"HTTP/1.1 503 Later\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)  # a close before it would reset the connection
                connection.sendall(refused)

        threading.Thread(target=serve, daemon=True).start()
        client = ApiClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(CliError, match="503"):
            list(pull(client, PullRequest("7", "a", start_ts="1")))


def test_a_server_that_never_answered_is_an_error() -> None:
    with pytest.raises(CliError, match="no answer from"):
        list(pull(ApiClient(f"http://127.0.0.1:{free_port()}"), PullRequest("7", "a", start_ts="1", follow=True)))


def test_a_pull_that_has_begun_goes_on_where_it_was_cut_off() -> None:
    told, waits, said = [], list[float](), list[str]()
    with serving([1, 5, 2, 4, 6, 0], ends=2) as url:
        for line, _ in pull(ApiClient(url), PullRequest("7", "a", start_ts="1"), waits.append, said.append):
            event = json.loads(line)
            if event["type"] == "row":
                told.append(event["n"])
    assert told == list(range(1, EVENTS + 1))
    assert waits == [0.5, 0.5, 1, 0.5], "the third answer had nothing new"
    assert said
    assert all("no answer from" in text for text in said)


def test_a_pull_that_gives_up_says_where_to_go_on() -> None:
    waits: list[float] = []
    with serving([5]) as url, pytest.raises(CliError) as ended:
        list(pull(ApiClient(url), PullRequest("7", "a", start_ts="1"), waits.append))
    assert sum(waits) > 50
    assert ended.value.status == 75
    assert str(ended.value).endswith("; to continue: --cursor c3, of whose events the first 2 are written")
