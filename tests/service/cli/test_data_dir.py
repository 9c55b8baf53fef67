from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tistream.cli.data_dir import open_data_dir
from tistream.cli.errors import CliError

_HOLD = """
import sys
from pathlib import Path
from tistream.cli.data_dir import open_data_dir
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
    with pytest.raises(CliError, match=f"cannot use data directory {tmp_path}/file/dir"):
        open_data_dir(tmp_path / "file" / "dir")


@pytest.mark.parametrize("letter", "?#%")
def test_letters_that_would_end_a_url_are_refused(tmp_path: Path, letter: str) -> None:
    with pytest.raises(CliError, match="must not hold"):
        open_data_dir(tmp_path / f"a{letter}b")
