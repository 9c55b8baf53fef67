"""The command `tistream simulate tikv`: it prints PD's address, serves it, and at its end prints what clients cost."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import grpc
import pytest

from support.golden_streams import FOLDER
from support.platform import COMMAND
from support.waiting import PATIENCE_S
from tistream.wire.tikv import pdpb_pb2 as pdpb


@pytest.mark.parametrize("options", [["--golden", FOLDER / "everything"], ["--seed", "3"], ["--raw"]])
def test_it_serves_until_it_is_stopped_and_prints_its_counters(options: list[object]) -> None:
    command = [str(COMMAND), "simulate", "tikv", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready, address, _, cluster_id = process.stdout.readline().split()
        assert ready == "ready"
        with grpc.insecure_channel(address) as pd:
            method = pd.unary_unary(
                "/pdpb.PD/GetMembers",
                request_serializer=lambda one: one.SerializeToString(),
                response_deserializer=pdpb.GetMembersResponse.FromString,
            )
            found = method(pdpb.GetMembersRequest(), timeout=PATIENCE_S)
        assert found.header.cluster_id == int(cluster_id)
        process.send_signal(signal.SIGTERM)
        counters = json.loads(process.communicate(timeout=PATIENCE_S)[0])
    assert process.returncode == 0
    assert counters["calls"] == {"GetMembers": 1}


def test_a_folder_that_is_no_recorded_history_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [COMMAND, "simulate", "tikv", "--golden", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "is no recorded change history" in done.stderr
