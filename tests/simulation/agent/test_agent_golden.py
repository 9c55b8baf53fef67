"""Recorded streams of three TiKV stores through the agent's core: its files have every change and reach the end."""

from __future__ import annotations

import pytest
from polars.testing import assert_frame_equal

from support import agent_replay, oracle
from support.agent_judge import counted
from support.agent_replay import TRUTH, Replay, committed
from support.effort import cases

EVERY = [(name, batch) for name in agent_replay.NAMES for batch in (1, 64)]
FEW = [("everything", 1), ("large", 64), ("raw", 64)]


@pytest.mark.parametrize(("name", "batch"), cases(FEW, [one for one in EVERY if one not in FEW]))
def test_the_files_of_a_recorded_stream_have_every_change_and_reach_the_end(name: str, batch: int) -> None:
    recorded = agent_replay.recorded(name)
    replay = Replay(recorded, batch)
    agent = replay.run()
    slices = counted(replay.files, recorded.base_ts)
    assert slices.waiting == []
    assert slices.watermark() >= recorded.end_ts
    rows = oracle.committed_rows([data for _, data in replay.files], recorded.base_ts, keep_index_keys=True)
    assert_frame_equal(rows.select(TRUTH).sort("commit_ts", "start_ts", "key"), committed(name))
    assert [draft.ts for draft in replay.drafts] == list(range(replay.drafts[0].ts, agent.next_ts))
    assert replay.holds == sorted(replay.holds)
