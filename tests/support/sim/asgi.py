"""Runs an ASGI app inside a fiber. What its coroutines hand to threads runs at once, in the fiber, which does the
waiting; they wait for nothing else but futures, which other fibers settle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from anyio._core import _eventloop
from fastapi import FastAPI

from tistream import concurrency

LOOK_S = 0.01  # virtual: how soon a fiber notices that what it waits for is there
Send = Callable[[dict[str, Any]], None]


class _Scope:
    """A cancel scope in which nothing is ever cancelled."""

    shield = False

    def __enter__(self) -> _Scope:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _Limiter:
    total_tokens = 0.0


class _Backend:
    """What starlette and fastapi ask of anyio's backend."""

    @classmethod
    async def run_sync_in_worker_thread(cls, func: Callable[..., Any], args: Any, **_: Any) -> Any:
        return func(*args)

    @classmethod
    async def checkpoint(cls) -> None:
        return None

    checkpoint_if_cancelled = cancel_shielded_checkpoint = checkpoint

    @classmethod
    def create_cancel_scope(cls, **_: Any) -> _Scope:
        return _Scope()

    @classmethod
    def create_capacity_limiter(cls, _tokens: float) -> _Limiter:
        return _Limiter()

    @classmethod
    def current_default_thread_limiter(cls) -> _Limiter:
        return _Limiter()


@contextmanager
def in_fibers() -> Iterator[None]:
    """While this holds, anyio believes that asyncio runs, and its threads are the fiber itself."""
    before, around = _eventloop.loaded_backends.get("asyncio"), asyncio._get_running_loop()
    _eventloop.loaded_backends["asyncio"] = _Backend  # type: ignore[assignment]
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)
        left = asyncio.all_tasks(loop)  # the loop never ran, so none of them has begun
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
        asyncio._set_running_loop(around)
        if before is None:
            del _eventloop.loaded_backends["asyncio"]
        else:
            _eventloop.loaded_backends["asyncio"] = before


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing but futures."""
    while True:
        try:
            waits = coroutine.send(None)
        except StopIteration as end:
            return end.value
        assert isinstance(waits, asyncio.Future), "a coroutine waits for an event loop"
        while not waits.done():
            concurrency.sleep(LOOK_S)


def serve_one(
    app: FastAPI,
    method: str,
    path: bytes,
    query: bytes,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    send: Send,
    address: str = "127.0.0.1",
) -> None:
    """One request of `address`. `send` gets the messages of the answer; it raises OSError once the client has gone."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.decode(),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": (address, 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    unread = [body]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": unread.pop() if unread else b"", "more_body": False}

    async def send_on(message: dict[str, Any]) -> None:
        send(message)

    drive(app(scope, receive, send_on))
