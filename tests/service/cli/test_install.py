"""scripts/install, as far as it goes without an index of packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "install"


def test_where_there_is_no_room_nothing_is_begun(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts" / "install")
    df = tmp_path / "bin" / "df"
    df.write_text(
        "#!/bin/sh\necho Filesystem 1048576-blocks Used Available Capacity Mounted on\necho x 9 9 127 99% /\n"
    )
    df.chmod(0o755)
    environ = {**os.environ, "PATH": f"{df.parent}:{os.environ['PATH']}"}
    done = subprocess.run([tmp_path / "scripts" / "install"], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{tmp_path} has 127 MiB free; installing takes up to 3072" in done.stderr
    assert not (tmp_path / ".venv").exists()
