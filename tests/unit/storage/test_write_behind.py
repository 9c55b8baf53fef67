"""Puts beside the caller's own work: all there once settled, none lost in silence, and a bounded number under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from support.waiting import PATIENCE_S, eventually
from tistream.errors import Unavailable
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import Body
from tistream.storage.write_behind import WriteBehind


class Gated(MemoryObjectStore):
    """Puts wait until the gate is open; keys that begin with "bad" are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun: list[str] = []

    def put(self, key: str, body: Body) -> None:
        self.begun.append(key)
        assert self.gate.wait(PATIENCE_S)
        if key.startswith("bad"):
            raise Unavailable(f"slow down: {key}")
        super().put(key, body)


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_the_caller_goes_on_and_all_is_there_once_settled(executor: Executor) -> None:
    store = Gated()
    behind = WriteBehind(store, executor, 1 << 20)
    for number in range(3):
        behind.put(f"key-{number}", memoryview(b"%d" % number))
    assert [info.key for info in store.list_after("")] == [], "not put yet, and put() has returned"
    store.gate.set()
    behind.settle()
    assert [store.get(info.key) for info in store.list_after("")] == [b"0", b"1", b"2"]


def test_a_failed_put_is_told_when_settled_and_the_others_have_ended(executor: Executor) -> None:
    store = Gated()
    store.gate.set()
    behind = WriteBehind(store, executor, 1 << 20)
    for key in ("bad", "good", "better"):
        behind.put(key, b"1")
    with pytest.raises(Unavailable, match="slow down: bad"):
        behind.settle()
    assert [info.key for info in store.list_after("")] == ["better", "good"]
    behind.settle()  # told once


def test_a_failed_put_is_told_by_a_later_one_that_has_to_wait_for_it(executor: Executor) -> None:
    store = Gated()
    store.gate.set()
    behind = WriteBehind(store, executor, 10)
    behind.put("bad", b"12345678")
    with pytest.raises(Unavailable, match="slow down: bad"):
        behind.put("next", b"12345678")


def test_no_more_bytes_are_under_way_than_asked_for(executor: Executor) -> None:
    store = Gated()
    behind = WriteBehind(store, executor, 20)
    behind.put("a", b"x" * 10)
    behind.put("b", b"x" * 10)
    waiting = threading.Thread(target=behind.put, args=("c", b"x"))
    waiting.start()
    eventually(lambda: store.begun == ["a", "b"])
    waiting.join(0.2)  # its chance to begin all the same
    assert waiting.is_alive()
    assert "c" not in store.begun
    store.gate.set()
    waiting.join(PATIENCE_S)
    behind.settle()
    assert len(list(store.list_after(""))) == 3


def test_one_body_above_the_limit_is_put_alone(executor: Executor) -> None:
    store = Gated()
    store.gate.set()
    behind = WriteBehind(store, executor, 1)
    behind.put("large", b"x" * 100)
    behind.settle()
    assert store.get("large") == b"x" * 100
