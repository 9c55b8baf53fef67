from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tistream.errors import CommitConflict, InvalidRequest, NotFoundYet, Unavailable
from tistream.storage.backends.directory import DirectoryObjectStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def store(root: Path) -> DirectoryObjectStore:
    return DirectoryObjectStore(root)


def listed(store: DirectoryObjectStore, prefix: str = "") -> list[str]:
    return [entry.key for entry in store.list_after(prefix)]


def test_an_object_is_a_file_of_that_name(store: DirectoryObjectStore, root: Path) -> None:
    store.put_new("a/b", b"one")
    assert (root / "a" / "b").read_bytes() == b"one"
    (root / "a" / "c").write_bytes(b"copied in")
    assert store.get("a/c") == b"copied in"


def test_leaves_no_temporary_files(store: DirectoryObjectStore, root: Path) -> None:
    store.put("a", b"1")
    store.put_new("b", b"1")
    store.put_if("b", b"2", store.head("b").version)
    with pytest.raises(CommitConflict):
        store.put_new("b", b"3")
    left = [name for name in os.listdir(f"{root}.tmp") if name != "lock"]
    assert left == []
    assert listed(store) == ["a", "b"]


def test_a_growing_file_shows_in_its_version(store: DirectoryObjectStore, root: Path) -> None:
    (root / "half").write_bytes(b"half")
    before = store.head("half").version
    with (root / "half").open("ab") as file:
        file.write(b" and the rest")
    assert store.head("half").version != before


def test_links_out_of_the_root_are_no_objects(store: DirectoryObjectStore, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (root / "link").symlink_to(secret)
    (root / "dir").symlink_to(tmp_path)
    (root / "loop").symlink_to(root)
    (root / "dangling").symlink_to(root / "nowhere")
    store.put("real", b"1")
    assert listed(store) == ["real"]
    for key in ("link", "dir/secret"):
        with pytest.raises(InvalidRequest):
            store.get(key)
        with pytest.raises(InvalidRequest):
            store.put(key, b"overwritten")
    assert secret.read_bytes() == b"secret"
    with pytest.raises(NotFoundYet):
        store.get("dangling")


def test_only_regular_files_with_sound_names_are_objects(store: DirectoryObjectStore, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "directory").mkdir()
    with open(os.fsencode(root) + b"/bad-\xff", "wb"):
        pass
    store.put("good", b"1")
    assert listed(store) == ["good"]
    for key in ("pipe", "directory"):
        with pytest.raises(NotFoundYet):
            store.get(key)


def test_a_key_below_an_object_is_refused(store: DirectoryObjectStore) -> None:
    store.put("a", b"1")
    with pytest.raises(InvalidRequest):
        store.put("a/b", b"2")
    store.put("d/e", b"1")
    with pytest.raises(InvalidRequest):
        store.put("d", b"2")


def test_a_file_system_that_refuses_is_unavailable_and_changes_nothing(root: Path, tmp_path: Path) -> None:
    store = DirectoryObjectStore(root)
    (tmp_path / "objects.tmp").write_bytes(b"in the way")  # no temporary file can be made, as on a full disk
    for call in (lambda: store.put("a", b"1"), lambda: store.put_new("a", b"1")):
        with pytest.raises(Unavailable, match="cannot write a"):
            call()
    assert listed(store) == []


def test_a_full_disk_is_unavailable_and_changes_nothing(tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys\n"
        "from tistream.errors import Unavailable\n"
        "from tistream.storage.backends.directory import DirectoryObjectStore\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "store = DirectoryObjectStore(sys.argv[1])\n"
        "store.put_new('small', b'x' * 1000)\n"
        "try:\n"
        "    store.put_new('large', b'x' * 1001)\n"
        "except Unavailable as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "objects")], capture_output=True, text=True, check=True
    )
    assert "cannot write large" in done.stdout
    assert listed(DirectoryObjectStore(tmp_path / "objects")) == ["small"]


def test_listing_enters_only_what_can_hold_the_keys(
    store: DirectoryObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in range(20):
        store.put(f"p/{part:02d}/x", b"")
    entered = []
    scan = os.scandir

    def counted(path: str) -> object:
        entered.append(os.path.relpath(path, root))
        return scan(path)

    monkeypatch.setattr(os, "scandir", counted)
    assert [entry.key for entry in store.list_after("p/", "p/17/x")] == ["p/18/x", "p/19/x"]
    assert entered == ["p", "p/17", "p/18", "p/19"]


def test_two_processes_race_for_one_key(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from tistream.errors import CommitConflict\n"
        "from tistream.storage.backends.directory import DirectoryObjectStore\n"
        "store = DirectoryObjectStore(sys.argv[1])\n"
        "won = 0\n"
        "for number in range(100):\n"
        "    try:\n"
        "        store.put_new(f'k/{number}', sys.argv[2].encode()); won += 1\n"
        "    except CommitConflict:\n"
        "        pass\n"
        "print(won)\n"
    )
    root = str(tmp_path / "objects")
    racers = [
        subprocess.Popen([sys.executable, "-c", script, root, name], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    won = [int(racer.communicate()[0]) for racer in racers]
    assert sum(won) == 100
    store = DirectoryObjectStore(root)
    assert [store.get(key) for key in listed(store)].count(b"one") == won[0]
