"""Errors cross the wire as the classes that they were raised as; only what is harmless is tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from support.http_world import Server
from support.waiting import PATIENCE_S
from tistream import errors
from tistream.service.http.app import new_app
from tistream.wire.clients.client import HttpClient
from tistream.wire.problem import PeerBusy, PeerFailed, to_error


class Answer(BaseModel):
    number: int


class Peer:
    """A server whose next answers are set by the test."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], object]] = []
        self.calls = 0
        app: FastAPI = new_app("peer", ready=lambda: None, registry=CollectorRegistry())

        @app.get("/thing")
        def thing() -> object:
            self.calls += 1
            return self.answers.pop(0)()

        self.server = Server(app)
        self.url = f"{self.server.url}/thing"

    def will(self, *answers: object) -> None:
        self.calls = 0
        self.answers = [
            self._raise(answer) if isinstance(answer, Exception) else lambda a=answer: a for answer in answers
        ]

    @staticmethod
    def _raise(error: Exception) -> Callable[[], object]:
        def raise_it() -> object:
            raise error

        return raise_it


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    running = Peer()
    yield running
    running.server.stop()


@pytest.fixture
def client() -> Iterator[HttpClient]:
    made = HttpClient(deadline_s=PATIENCE_S, sleep=lambda _: None)
    yield made
    made.close()


def test_an_answer_becomes_its_model(peer, client):
    peer.will({"number": 5})
    assert client.get(peer.url, Answer).number == 5


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequest("bad", {"parameter": "ts"}),
        errors.UnknownName("who?"),
        errors.AlreadyDiffers("differs"),
        errors.Gone("too old", {"earliest_ts": "5"}),
        errors.Undecodable("row", {"table": "t"}),
    ],
)
def test_a_callers_fault_comes_back_as_itself(peer, client, error):
    peer.will(error)
    with pytest.raises(errors.InvalidRequest) as caught:
        client.get(peer.url, Answer, attempts=3)
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert caught.value.extra == error.extra
    assert peer.calls == 1


def test_a_busy_peer_is_tried_again(peer, client):
    peer.will(errors.Unavailable("full"), errors.Unavailable("full"), {"number": 1})
    assert client.get(peer.url, Answer, attempts=3).number == 1
    peer.will(errors.Unavailable("full"), errors.Unavailable("full"))
    with pytest.raises(PeerBusy, match="full") as caught:
        client.get(peer.url, Answer, attempts=2)
    assert caught.value.retry_after_s == 1.0
    assert peer.calls == 2


def test_a_peers_own_failure_is_not_tried_again(peer, client):
    peer.will(RuntimeError("secret"))
    with pytest.raises(PeerFailed) as caught:
        client.get(peer.url, Answer, attempts=3)
    assert (caught.value.status, caught.value.peer_code) == (500, "internal")
    assert "secret" not in str(caught.value)
    assert peer.calls == 1


def test_an_answer_of_another_form_is_a_failure(peer, client):
    peer.will({"word": "x"})
    with pytest.raises(PeerFailed, match="not a Answer"):
        client.get(peer.url, Answer)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://[", "http://127.0.0.1:99999/"])
def test_nobody_there_is_unavailable(client, url):
    with pytest.raises(errors.Unavailable):
        client.get(url, Answer)


def test_a_client_that_was_closed_is_unavailable_and_names_the_call(peer, client):
    client.close()
    with pytest.raises(errors.Unavailable, match=r"GET http://127\.0\.0\.1:[0-9]+/thing: this process is stopping"):
        client.get(peer.url, Answer)


def test_a_call_that_was_under_way_when_its_client_was_closed_is_unavailable():
    asked, closed = threading.Event(), threading.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.set()
        closed.wait(PATIENCE_S)
        raise OSError(9, "Bad file descriptor")  # what a socket that another thread has closed says

    client = HttpClient(transport=httpx.MockTransport(answer))
    ended: list[Exception] = []

    def call() -> None:
        try:
            client.get("http://peer/thing", Answer)
        except Exception as error:
            ended.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert asked.wait(PATIENCE_S)
    client.close()
    closed.set()
    caller.join(PATIENCE_S)
    assert [type(error) for error in ended] == [errors.Unavailable]


def test_a_problem_that_is_none_of_ours():
    assert isinstance(to_error("GET x", 418, {}), PeerFailed)
    assert isinstance(to_error("GET x", 502, {}), PeerBusy)
    assert isinstance(to_error("GET x", 503, {"type": "tistream:commit-state-unknown"}, "soon"), PeerBusy)
    fenced = to_error("GET x", 412, {"type": "tistream:fenced", "detail": "d"})
    assert isinstance(fenced, PeerFailed)
    assert fenced.peer_code == "fenced"
