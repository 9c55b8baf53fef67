"""The compiled messages of TiKV's interfaces are what their `.proto` files give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
COMPILED = "tistream/wire/tikv"


def test_the_compiled_messages_are_those_of_the_proto_files(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts/tikv-protos", tmp_path], check=True, timeout=PATIENCE_S)
    new = {path.name: path.read_bytes() for path in (tmp_path / COMPILED).glob("*_pb2.py*")}
    kept = {path.name: path.read_bytes() for path in (ROOT / "shared" / COMPILED).glob("*_pb2.py*")}
    assert len(new) == 2 * len(list((ROOT / "shared" / COMPILED).glob("*.proto")))
    assert new == kept
