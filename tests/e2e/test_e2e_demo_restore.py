"""`tistream demo-restore`: from nothing to an undone UPDATE, with every process of the platform."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support import golden, kept
from support.mariadb import binary
from support.not_run import not_run
from support.waiting import PATIENCE_S


def test_the_bad_update_is_found_and_undone(tmp_path: Path) -> None:
    try:
        server = binary()
    except kept.NotHad as reason:
        not_run(reason)
    command = [sys.executable, "-m", "tistream_cli", "demo-restore", "--golden", str(golden.ROOT / "large")]
    done = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:{Path(server).parent}"},
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert "3000 conflicts: wide.large: another transaction has deleted the row since" in done.stdout
    assert "applied: 7000 rows changed" in done.stdout
    assert re.search(r"differ from just before the UPDATE: 7000 before the undo, 1 after it", done.stdout)
