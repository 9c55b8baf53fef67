"""What every ObjectStore must do. A store's test class inherits this and gives a fixture `objects`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tistream.errors import CommitConflict, InvalidRequest, NotFoundYet
from tistream.storage.object_store import ObjectInfo, ObjectStore

BAD_KEYS = ["", "/a", "a/", "a//b", "a/./b", "../a", "a/../b", ".", "..", "a\0b", "x" * 300, "a/" * 600 + "b", "\ud800"]


def keys_of(entries: list[ObjectInfo]) -> list[str]:
    return [entry.key for entry in entries]


class ObjectStoreContract:
    """Every test gets a new, empty store."""

    def test_reads_back_what_was_put(self, objects: ObjectStore) -> None:
        objects.put("a/b", b"one")
        assert objects.get("a/b") == b"one"
        objects.put("a/b", b"")
        assert objects.get("a/b") == b""

    def test_missing_objects_are_not_found(self, objects: ObjectStore) -> None:
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

    def test_ranges_end_with_the_object(self, objects: ObjectStore) -> None:
        objects.put("k", b"0123456789")
        assert objects.get_range("k", 0, 4) == b"0123"
        assert objects.get_range("k", 7, 100) == b"789"
        assert objects.get_range("k", 10, 5) == b""
        assert objects.get_range("k", 99, 5) == b""
        assert objects.get_range("k", 3, 0) == b""

    def test_tails_come_with_the_size(self, objects: ObjectStore) -> None:
        objects.put("k", b"0123456789")
        objects.put("empty", b"")
        assert objects.get_tail("k", 3) == (b"789", 10)
        assert objects.get_tail("k", 10) == (b"0123456789", 10)
        assert objects.get_tail("k", 64) == (b"0123456789", 10)
        assert objects.get_tail("k", 0) == (b"", 10)
        assert objects.get_tail("empty", 3) == (b"", 0)

    def test_head_tells_size_and_a_version_that_follows_the_bytes(self, objects: ObjectStore) -> None:
        objects.put("k", b"one")
        first = objects.head("k")
        assert (first.key, first.size) == ("k", 3)
        assert objects.head("k") == first
        objects.put("k", b"two")
        assert objects.head("k").version != first.version

    def test_put_new_never_overwrites(self, objects: ObjectStore) -> None:
        objects.put_new("a/b/c", b"mine")
        with pytest.raises(CommitConflict) as raised:
            objects.put_new("a/b/c", b"other")
        assert raised.value.key == "a/b/c"
        assert objects.get("a/b/c") == b"mine"

    def test_of_many_put_new_one_wins(self, objects: ObjectStore) -> None:
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

    def test_put_if_needs_the_version_it_saw(self, objects: ObjectStore) -> None:
        objects.put_new("floor", b"1")
        seen = objects.head("floor").version
        objects.put_if("floor", b"2", seen)
        with pytest.raises(CommitConflict):
            objects.put_if("floor", b"3", seen)
        assert objects.get("floor") == b"2"

    def test_put_if_needs_an_object(self, objects: ObjectStore) -> None:
        objects.put_new("floor", b"1")
        seen = objects.head("floor").version
        objects.delete("floor")
        with pytest.raises(CommitConflict):
            objects.put_if("floor", b"2", seen)
        with pytest.raises(NotFoundYet):
            objects.get("floor")

    def test_of_many_put_if_one_wins(self, objects: ObjectStore) -> None:
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

    def test_delete_is_idempotent(self, objects: ObjectStore) -> None:
        objects.put("a/b", b"one")
        objects.delete("a/b")
        objects.delete("a/b")
        objects.delete("never/was")
        with pytest.raises(NotFoundYet):
            objects.get("a/b")
        objects.put_new("a/b", b"again")
        assert objects.get("a/b") == b"again"

    def test_lists_in_key_order(self, objects: ObjectStore) -> None:
        # "." and "-" sort before "/", "0" after it: a directory's entries are not where its bare name would be
        keys = ["a-b/x", "a.b", "a/b/c", "a/b.c", "a/b0", "a/z", "a0", "b/ü", "b/z", "c"]
        for key in reversed(keys):
            objects.put(key, key.encode())
        listed = list(objects.list_after(""))
        assert keys_of(listed) == sorted(keys)
        assert {entry.key: entry.size for entry in listed} == {key: len(key.encode()) for key in keys}
        assert all(objects.head(entry.key).version == entry.version for entry in listed)

    def test_lists_below_a_prefix(self, objects: ObjectStore) -> None:
        for key in ("store-1/file-1", "store-1/file-2", "store-10/file-1", "store-2/file-1"):
            objects.put(key, b"")
        assert keys_of(list(objects.list_after("store-1/"))) == ["store-1/file-1", "store-1/file-2"]
        assert keys_of(list(objects.list_after("store-1"))) == ["store-1/file-1", "store-1/file-2", "store-10/file-1"]
        assert keys_of(list(objects.list_after("store-1/file-2"))) == ["store-1/file-2"]
        assert keys_of(list(objects.list_after("store-3/"))) == []
        assert keys_of(list(objects.list_after("store-1/file-1/x"))) == []

    @pytest.mark.parametrize(
        ("after", "expected"),
        [
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
        ],
    )
    def test_lists_after_a_key(self, objects: ObjectStore, after: str, expected: list[str]) -> None:
        for key in ("s/a/1", "s/a/2", "s/b", "s/c/1", "t/other"):
            objects.put(key, b"")
        assert keys_of(list(objects.list_after("s/", after))) == expected

    def test_lists_common_prefixes(self, objects: ObjectStore) -> None:
        for key in ("p/store-1/f1", "p/store-1/f2", "p/store-2/f1", "p/schema_snap", "q/x"):
            objects.put(key, b"1")
        listed = list(objects.list_after("p/", delimiter="/"))
        assert [(entry.key, entry.size) for entry in listed] == [
            ("p/schema_snap", 1),
            ("p/store-1/", -1),
            ("p/store-2/", -1),
        ]
        assert keys_of(list(objects.list_after("p/", "p/store-1/", "/"))) == ["p/store-2/"]
        assert keys_of(list(objects.list_after("p/store", delimiter="/"))) == ["p/store-1/", "p/store-2/"]
        assert keys_of(list(objects.list_after("", delimiter="/"))) == ["p/", "q/"]

    def test_emptied_prefixes_vanish(self, objects: ObjectStore) -> None:
        objects.put("p/a/x/1", b"1")
        objects.delete("p/a/x/1")
        assert list(objects.list_after("p/", delimiter="/")) == []

    def test_lists_more_than_one_page(self, objects: ObjectStore) -> None:
        keys = [f"many/{number:02d}" for number in range(25)]  # stores with pages make them small for this
        for key in keys:
            objects.put(key, b"")
        assert keys_of(list(objects.list_after("many/"))) == keys
        assert keys_of(list(objects.list_after("many/", "many/08"))) == keys[9:]

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_refuses_keys_that_some_store_could_not_hold(self, objects: ObjectStore, key: str) -> None:
        for call in (
            lambda: objects.get(key),
            lambda: objects.head(key),
            lambda: objects.put(key, b""),
            lambda: objects.put_new(key, b""),
            lambda: objects.put_if(key, b"", "v"),
            lambda: objects.delete(key),
        ):
            with pytest.raises(InvalidRequest):
                call()
