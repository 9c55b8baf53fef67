"""RawKV of one emulated cluster into another one, while the agent and the replay are killed (kill -9) at random.

KILLS (default 8) of the environment sets how often.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support import platform, raw_set
from support.agent_process import AgentProcess
from support.effort import seeds
from support.emulated import EmulatedTikv
from support.platform import Platform
from support.raw_replay import Replay, connect, raw_agent, require_equal
from support.raw_target import RawTarget
from support.waiting import eventually

KILLS = int(os.environ.get("KILLS", "8"))
SPEED = 0.1  # the six seconds of the record take a minute


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Platform]:
    with platform.running(tmp_path / "platform") as started:
        yield started


@pytest.fixture
def tikv() -> Iterator[EmulatedTikv]:
    started = EmulatedTikv("raw", speed=SPEED).start()
    yield started
    started.stop()


# Attack: the replay, the agent or both are killed at random while writes arrive; the target's regions move and split
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_two_clusters_are_equal_however_often_the_replay_is_killed(
    up: Platform, tikv: EmulatedTikv, tmp_path: Path, seed: int
) -> None:
    rng, end_ts = random.Random(seed), raw_set.load().end_ts
    connect(up, tikv)
    agent = raw_agent(up, tikv, tmp_path)
    with RawTarget() as target:
        replay = Replay(up, target, tmp_path)
        choices: list[list[Replay | AgentProcess]] = [[replay], [replay], [agent], [replay, agent]]
        try:
            agent.start()
            replay.start()
            for _ in range(KILLS):
                # At any moment: between two writes, during one, or before the position of the last one is stored.
                time.sleep(rng.uniform(0.5, 6.0))
                victims = rng.choice(choices)
                for victim in victims:
                    victim.kill()
                for victim in victims:
                    victim.start()
                eventually(partial(replay.passed, replay.resolved_ts()))
            replay.finish(end_ts)
        finally:
            agent.kill()
            replay.kill()
        require_equal(target, tikv)
