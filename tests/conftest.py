"""What holds for every test."""

import os

from hypothesis import HealthCheck, settings

from support.effort import FULL, examples
from support.waiting import PATIENCE_S

pytest_plugins = [
    "support.not_run",
    "support.tiers",
    "support.platform_reports",
    "support.one_worker",
    "support.seldom_collected",
    "support.built_commands",
]

# gRPC, which emulated clusters serve with, may end a process that is forked here before it becomes another program.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# Commands that call PD or TiKV wait as long for an answer as any test.
os.environ["TISTREAM_CALL_TIMEOUT"] = str(PATIENCE_S)

# No deadline and no check of speed: what is slow is seen in benchmarks. Only the soak draws at random.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not FULL,
    max_examples=examples(100),
)
settings.load_profile("untimed")
