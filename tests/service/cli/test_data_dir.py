from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tistream.storage.backends.directory import DirectoryObjectStore
from tistream_cli.platform.data_dir import open_data_dir
from tistream_client.cli.errors import CliError

_HOLD = """
import sys
from pathlib import Path
from tistream_cli.platform.data_dir import open_data_dir
held = open_data_dir(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_everything_is_below_the_directory(tmp_path: Path) -> None:
    directory = open_data_dir(tmp_path / "my data")
    assert directory.objects_url == f"file://{tmp_path}/my%20data/objects"
    assert directory.database_url == f"sqlite:///{tmp_path}/my data/meta.db"
    assert all(path.is_dir() for path in (directory.logs, directory.scratch))
    os.close(directory.lock_fd)


def test_one_holder_at_a_time_named_by_its_pid_and_none_after_a_kill(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(CliError, match=f"{tmp_path} is in use by another tistream up .pid {holder.pid}.") as caught:
        open_data_dir(tmp_path)
    assert caught.value.__cause__ is not None
    holder.kill()
    holder.wait()
    os.close(open_data_dir(tmp_path).lock_fd)


def test_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CliError, match=f"--data-dir {tmp_path}/file/dir cannot be used"):
        open_data_dir(tmp_path / "file" / "dir")


@pytest.mark.parametrize("letter", "?#%")
def test_letters_that_would_end_a_url_are_refused(tmp_path: Path, letter: str) -> None:
    with pytest.raises(CliError, match="must not contain"):
        open_data_dir(tmp_path / f"a{letter}b")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_for_its_user_alone(tmp_path: Path) -> None:
    with umask(0o022):
        os.close(open_data_dir(tmp_path / "new").lock_fd)
    assert mode(tmp_path / "new") == 0o700


def test_one_of_an_older_version_is_narrowed_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "old"
    (root / "objects").mkdir(parents=True)
    root.chmod(0o755)
    os.close(open_data_dir(root).lock_fd)
    assert mode(root) == 0o700
    told = capsys.readouterr().err
    assert f"{root} was open to other users of this machine (mode 0755)" in told
    os.close(open_data_dir(root).lock_fd)
    assert capsys.readouterr().err == ""


def test_a_wider_directory_of_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    tmp_path.chmod(0o750)
    with pytest.raises(CliError, match=r"mode 0750.*contains letters.*chmod 700"):
        open_data_dir(tmp_path)
    assert mode(tmp_path) == 0o750
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]
    tmp_path.chmod(0o700)
    os.close(open_data_dir(tmp_path).lock_fd)


def test_a_directory_that_users_share_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(CliError, match="mode 1777"):
        open_data_dir(shared)
    assert mode(shared) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 4711, -1)
    with pytest.raises(CliError, match="belongs to user 4711"):
        open_data_dir(theirs)


def test_objects_are_as_narrow_as_the_umask_says(tmp_path: Path) -> None:
    """A store that several users share has them readable; below a data directory they are one user's."""
    for mask, wanted in ((0o077, 0o600), (0o022, 0o644)):
        with umask(mask):
            store = DirectoryObjectStore(tmp_path / f"{mask:o}")
            store.put("a/one", b"1")
            store.put_new("a/two", b"2")
            store.put_if("a/two", b"3", store.head("a/two").version)
        assert {mode(tmp_path / f"{mask:o}" / "a" / name) for name in ("one", "two")} == {wanted}
