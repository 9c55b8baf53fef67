"""Calls of services that speak plain HTTP. httpx would read the certificates of all authorities of the world for each
call and each client, which costs 25 ms of a processor, and tests ask again and again."""

from __future__ import annotations

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
