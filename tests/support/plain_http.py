"""Calls of services that speak plain HTTP. httpx would read the certificates of all authorities of the world for each
call and each client, which costs 25 ms of a processor, and tests ask again and again."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import httpx

from support.waiting import PATIENCE_S


def request(method: str, url: str, **options: Any) -> httpx.Response:
    """As httpx.request, on a connection of its own. `options`: of httpx.request."""
    return httpx.request(method, url, **{"timeout": PATIENCE_S, "verify": False, "trust_env": False, **options})


get, post = partial(request, "GET"), partial(request, "POST")


def client(**options: Any) -> httpx.Client:
    """As httpx.Client, for many calls. `options`: of httpx.Client."""
    return httpx.Client(**{"timeout": PATIENCE_S, "verify": False, "trust_env": False, **options})


class Again(httpx.BaseTransport):
    """Sends a request again that was answered by a 503 with Retry-After, after the time that it says: a service whose
    peer did not answer in its time says so. It gives up after PATIENCE_S, and returns the 503."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._inner.handle_request(request)
            after_s = answer.headers.get("retry-after")
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or after_s is None or time.monotonic() > deadline:
                return answer
            answer.read()
            answer.close()
            threading.Event().wait(float(after_s))

    def close(self) -> None:
        self._inner.close()


def patient_get(url: str, **options: Any) -> httpx.Response:
    """`get` for a caller that comes again when it is told to. `options`: of httpx.Client.get."""
    with patient_client() as http:
        return http.get(url, **options)


def patient_client(**options: Any) -> httpx.Client:
    """The same for a caller that comes again when it is told to, as any careful one does. A call that changes something
    may have done so before its 503: where the first call answers 201, the next one may answer 200."""
    return client(transport=Again(httpx.HTTPTransport(verify=False, trust_env=False)), **options)
