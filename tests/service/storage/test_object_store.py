"""What every ObjectStore must do: one suite, for each of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from support.effort import cases
from tistream.clock import SystemClock
from tistream.errors import CommitConflict, InvalidRequest, NotFoundYet
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import Body, ObjectInfo, ObjectStore

MIB = 1 << 20
PARTS = {"multipart_bytes": 5 * MIB, "part_bytes": 5 * MIB}  # no smaller part is allowed but the last
LARGE = 11 * MIB + 7
NOT_MOTO = ("memory", "measured", "directory", "minio", "minio-below-a-prefix", "guarded")
STORES = cases([*NOT_MOTO, "moto"], ["moto-below-a-prefix"])
OTHER_SERVERS = ("minio-below-a-prefix", "guarded", "moto", "moto-below-a-prefix")
BAD_KEYS = ["", "/a", "a/", "a//b", "a/./b", "../a", "a/../b", ".", "..", "a\0b", "x" * 300, "a/" * 600 + "b", "\ud800"]
HOSTILE_KEYS = [
    "a b",
    " lead",
    "trail ",
    "a+b",
    "a%2Fb/c%",
    "q?x=1&y#z",
    "a\\b",
    "<&>'\"]]>",
    "*:;,|$`!",
    "~/-/_",
    "...",
    "..a/b..",
    "ü/日本/😀",
    "e\u0301",  # not the same as é
    "\u00e9",
    "xl.meta",
    "n" * 254,
]
CONTROL_KEYS = ["line\nbreak", "tab\tand\x01\x7f", "\r\nreturn"]


def store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A new, empty one."""
    if kind == "memory":
        return MemoryObjectStore(SystemClock())
    if kind == "measured":
        return MeasuredObjectStore(MemoryObjectStore(SystemClock()))
    if kind == "directory":
        return DirectoryObjectStore(tmp_path / "objects")
    server = request.getfixturevalue(kind.partition("-")[0])
    bucket = server.new_bucket()
    if "prefix" not in kind:
        return server.store(bucket, **PARTS)
    server.store(bucket, "env/production-2/").put("other", b"1")
    return server.store(bucket, "env/production/", list_page=10, **PARTS)


@pytest.fixture(params=STORES)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return store(request.param, request, tmp_path)


def keys_of(entries: Iterator[ObjectInfo]) -> list[str]:
    return [entry.key for entry in entries]


def large(seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(LARGE)


def put_many(objects: ObjectStore, keys: list[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: objects.put(key, b""), keys))


def test_reads_back_what_was_put(objects: ObjectStore) -> None:
    objects.put("a/b", b"one")
    assert objects.get("a/b") == b"one"
    objects.put("a/b", b"")
    assert objects.get("a/b") == b""


def test_an_object_says_when_it_was_written(objects: ObjectStore) -> None:
    began_ms = SystemClock().now_ms()
    objects.put("a/b", b"one")
    (listed,) = objects.list_after("a/")
    headed = objects.head("a/b")
    assert replace(listed, modified_ms=0) == replace(headed, modified_ms=0)
    assert abs(listed.modified_ms - headed.modified_ms) < 1_000, "HTTP has whole seconds"
    assert abs(listed.modified_ms - began_ms) < 60_000, "the server's clock is this machine's"


def test_missing_objects_are_not_found(objects: ObjectStore) -> None:
    objects.put("a/b", b"one")
    for missing in ("a", "a/b/c", "a/c", "b"):
        for read in (
            objects.get,
            objects.head,
            lambda key: objects.get_range(key, 0, 1),
            lambda key: objects.get_range(key, 0, 0),
            lambda key: objects.get_tail(key, 5),
        ):
            with pytest.raises(NotFoundYet) as raised:
                read(missing)
            assert raised.value.key == missing


def test_ranges_end_with_the_object(objects: ObjectStore) -> None:
    objects.put("k", b"0123456789")
    assert objects.get_range("k", 0, 4) == b"0123"
    assert objects.get_range("k", 7, 100) == b"789"
    assert objects.get_range("k", 10, 5) == b""
    assert objects.get_range("k", 99, 5) == b""
    assert objects.get_range("k", 3, 0) == b""


def test_tails_come_with_the_size(objects: ObjectStore) -> None:
    objects.put("k", b"0123456789")
    objects.put("empty", b"")
    assert objects.get_tail("k", 3) == (b"789", 10)
    assert objects.get_tail("k", 10) == (b"0123456789", 10)
    assert objects.get_tail("k", 64) == (b"0123456789", 10)
    assert objects.get_tail("k", 0) == (b"", 10)
    assert objects.get_tail("empty", 3) == (b"", 0)


def test_head_tells_size_and_a_version_that_follows_the_bytes(objects: ObjectStore) -> None:
    objects.put("k", b"one")
    first = objects.head("k")
    assert (first.key, first.size) == ("k", 3)
    assert objects.head("k") == first
    objects.put("k", b"two")
    assert objects.head("k").version != first.version


def test_put_new_never_overwrites(objects: ObjectStore) -> None:
    objects.put_new("a/b/c", b"mine")
    with pytest.raises(CommitConflict) as raised:
        objects.put_new("a/b/c", b"other")
    assert raised.value.key == "a/b/c"
    assert objects.get("a/b/c") == b"mine"


def test_of_many_put_new_one_wins(objects: ObjectStore) -> None:
    def attempt(number: int) -> bytes | None:
        body = b"writer %d" % number
        try:
            objects.put_new("race/k", body)
        except CommitConflict:
            return None
        return body

    with ThreadPoolExecutor(8) as pool:
        winners = [body for body in pool.map(attempt, range(8)) if body is not None]
    assert len(winners) == 1
    assert objects.get("race/k") == winners[0]


def test_put_if_needs_the_version_it_saw(objects: ObjectStore) -> None:
    objects.put_new("floor", b"1")
    seen = objects.head("floor").version
    objects.put_if("floor", b"2", seen)
    with pytest.raises(CommitConflict):
        objects.put_if("floor", b"3", seen)
    assert objects.get("floor") == b"2"


def test_put_if_needs_an_object(objects: ObjectStore) -> None:
    objects.put_new("floor", b"1")
    seen = objects.head("floor").version
    objects.delete("floor")
    with pytest.raises(CommitConflict):
        objects.put_if("floor", b"2", seen)
    with pytest.raises(NotFoundYet):
        objects.get("floor")


def test_of_many_put_if_one_wins(objects: ObjectStore) -> None:
    objects.put_new("floor", b"0")
    seen = objects.head("floor").version

    def attempt(number: int) -> int:
        try:
            objects.put_if("floor", b"%d" % number, seen)
        except CommitConflict:
            return 0
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(attempt, range(1, 9)) if number]
    assert [int(objects.get("floor"))] == winners


def test_delete_is_idempotent(objects: ObjectStore) -> None:
    objects.put("a/b", b"one")
    objects.delete("a/b")
    objects.delete("a/b")
    objects.delete("never/was")
    with pytest.raises(NotFoundYet):
        objects.get("a/b")
    objects.put_new("a/b", b"again")
    assert objects.get("a/b") == b"again"


def test_lists_in_key_order(objects: ObjectStore) -> None:
    # "." and "-" sort before "/", "0" after it: a directory's entries are not where its bare name would be
    keys = ["a-b/x", "a.b", "a/b/c", "a/b.c", "a/b0", "a/z", "a0", "b/ü", "b/z", "c"]
    for key in reversed(keys):
        objects.put(key, key.encode())
    listed = list(objects.list_after(""))
    assert keys_of(iter(listed)) == sorted(keys)
    assert {entry.key: entry.size for entry in listed} == {key: len(key.encode()) for key in keys}
    assert all(objects.head(entry.key).version == entry.version for entry in listed)


def test_lists_below_a_prefix(objects: ObjectStore) -> None:
    for key in ("store-1/file-1", "store-1/file-2", "store-10/file-1", "store-2/file-1"):
        objects.put(key, b"")
    assert keys_of(objects.list_after("store-1/")) == ["store-1/file-1", "store-1/file-2"]
    assert keys_of(objects.list_after("store-1")) == ["store-1/file-1", "store-1/file-2", "store-10/file-1"]
    assert keys_of(objects.list_after("store-1/file-2")) == ["store-1/file-2"]
    assert keys_of(objects.list_after("store-3/")) == []
    assert keys_of(objects.list_after("store-1/file-1/x")) == []


def test_lists_after_a_key(objects: ObjectStore) -> None:
    for key in ("s/a/1", "s/a/2", "s/b", "s/c/1", "t/other"):
        objects.put(key, b"")
    for after, expected in (
        ("", ["s/a/1", "s/a/2", "s/b", "s/c/1"]),
        ("s/a/1", ["s/a/2", "s/b", "s/c/1"]),
        ("s/a/15", ["s/a/2", "s/b", "s/c/1"]),
        ("s/a/2", ["s/b", "s/c/1"]),
        ("s/b", ["s/c/1"]),
        ("s/bb", ["s/c/1"]),
        ("s/c", ["s/c/1"]),
        ("s/c/1", []),
        ("t", []),
        ("a", ["s/a/1", "s/a/2", "s/b", "s/c/1"]),
    ):
        assert keys_of(objects.list_after("s/", after)) == expected, after


def test_lists_common_prefixes(objects: ObjectStore) -> None:
    for key in ("p/store-1/f1", "p/store-1/f2", "p/store-2/f1", "p/schema_snap", "q/x"):
        objects.put(key, b"1")
    listed = list(objects.list_after("p/", delimiter="/"))
    assert [(entry.key, entry.size) for entry in listed] == [
        ("p/schema_snap", 1),
        ("p/store-1/", -1),
        ("p/store-2/", -1),
    ]
    assert keys_of(objects.list_after("p/", "p/store-1/", "/")) == ["p/store-2/"]
    assert keys_of(objects.list_after("p/store", delimiter="/")) == ["p/store-1/", "p/store-2/"]
    assert keys_of(objects.list_after("", delimiter="/")) == ["p/", "q/"]


def test_emptied_prefixes_vanish(objects: ObjectStore) -> None:
    objects.put("p/a/x/1", b"1")
    objects.delete("p/a/x/1")
    assert list(objects.list_after("p/", delimiter="/")) == []


def test_refuses_keys_that_some_store_could_not_hold(objects: ObjectStore) -> None:
    for key in BAD_KEYS:
        calls: list[Callable[[str], object]] = [
            objects.get,
            objects.head,
            lambda key: objects.put(key, b""),
            lambda key: objects.put_new(key, b""),
            lambda key: objects.put_if(key, b"", "v"),
            objects.delete,
        ]
        for call in calls:
            with pytest.raises(InvalidRequest):
                call(key)


def test_empty_objects_have_no_bytes_to_read(objects: ObjectStore) -> None:
    objects.put("empty", b"")
    assert objects.get("empty") == b""
    assert objects.get_range("empty", 0, 5) == b""
    assert objects.get_range("empty", 3, 5) == b""
    assert objects.head("empty").size == 0


@pytest.mark.parametrize("shape", [bytes, memoryview], ids=["bytes", "view"])
def test_a_large_object_reads_back_whole_and_in_ranges(objects: ObjectStore, shape: Callable[[bytes], Body]) -> None:
    body = large()
    objects.put("large", shape(body))
    assert objects.get("large") == body
    assert objects.get_range("large", 5 * MIB - 3, 7) == body[5 * MIB - 3 : 5 * MIB + 4]
    assert objects.get_range("large", LARGE - 2, 7) == body[-2:]
    assert objects.get_tail("large", 6 * MIB) == (body[-6 * MIB :], LARGE)
    first = objects.head("large")
    assert [(entry.key, entry.size, entry.version) for entry in objects.list_after("")] == [
        ("large", LARGE, first.version)
    ]
    objects.put("large", shape(large(1)))
    assert objects.head("large").version != first.version
    objects.delete("large")
    with pytest.raises(NotFoundYet):
        objects.get("large")


def test_a_large_put_new_never_overwrites(objects: ObjectStore) -> None:
    objects.put_new("large", large())
    with pytest.raises(CommitConflict):
        objects.put_new("large", large(1))
    assert objects.get("large") == large()
    with pytest.raises(CommitConflict):
        objects.put_new("large", b"small")
    objects.put_new("small", b"small")
    with pytest.raises(CommitConflict):
        objects.put_new("small", large())
    assert objects.get("small") == b"small"


def test_of_many_large_put_new_one_wins(objects: ObjectStore) -> None:
    bodies = [large(seed) for seed in range(4)]

    def attempt(body: bytes) -> bool:
        try:
            objects.put_new("race", body)
        except CommitConflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(attempt, bodies))
    assert sum(won) == 1
    assert objects.get("race") == bodies[won.index(True)]


@pytest.mark.parametrize("kind", NOT_MOTO)  # moto ignores If-Match at the end of an upload: see test_s3_store.py
def test_a_large_put_if_needs_the_version_it_saw(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    objects = store(kind, request, tmp_path)
    objects.put_new("floor", b"1")
    seen = objects.head("floor").version
    objects.put_if("floor", large(), seen)
    with pytest.raises(CommitConflict):
        objects.put_if("floor", large(1), seen)
    assert objects.get("floor") == large()
    objects.delete("floor")
    with pytest.raises(CommitConflict):
        objects.put_if("floor", large(), seen)


@pytest.mark.parametrize("kind", cases(["memory", "directory", "minio"], ["measured", *OTHER_SERVERS]))
def test_lists_more_than_a_thousand_in_pages(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    objects = store(kind, request, tmp_path)
    keys = [f"many/{number:04d}" for number in range(1005)]
    put_many(objects, [*keys, "many-0", "manz"])
    assert keys_of(objects.list_after("many/")) == keys
    assert keys_of(objects.list_after("many/", "many/0998")) == keys[999:]
    assert keys_of(objects.list_after("", delimiter="/")) == ["many-0", "many/", "manz"]
    listing = objects.list_after("many/")
    assert [next(listing).key for _ in range(3)] == keys[:3]  # and the rest is not asked for


def test_hostile_names_are_names_like_others(objects: ObjectStore) -> None:
    check_names(objects, HOSTILE_KEYS)


@pytest.mark.parametrize("kind", NOT_MOTO)  # moto does not find what it has put
def test_control_characters_are_characters(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    check_names(store(kind, request, tmp_path), CONTROL_KEYS)


def check_names(objects: ObjectStore, names: list[str]) -> None:
    bodies = {f"p/{name}{end}": f"{name}{end}".encode() for name in names for end in ("", ".")}
    for key, body in bodies.items():
        objects.put_new(key, body)
        objects.put(key, body)
    keys = sorted(bodies)
    assert keys_of(objects.list_after("p/")) == keys
    for key, body in bodies.items():
        assert objects.get(key) == body
        assert objects.head(key).size == len(body)
        assert keys_of(objects.list_after("p/", key)) == keys[keys.index(key) + 1 :]
        assert keys_of(objects.list_after(key)) == [other for other in keys if other.startswith(key)]
    gone = f"p/{names[0]}"
    for key in keys:
        if key != gone:
            objects.delete(key)
    assert keys_of(objects.list_after("p/")) == [gone]
