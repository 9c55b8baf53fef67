"""Which tests one process runs, one after the other, and which of them begin first (a pytest plugin for xdist).

Tests that share a platform run in one process. Groups that take longest begin first, so that no core is idle at the
end. xdist begins with the groups of most tests, and a group of one long test would be the last.

xdist's own `loadgroup` goes by marks, which its workers do not hand on with pytest 9. So groups go by the names of
files, and the tests of any other file are a group.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

FOUR_RANGES, DAMAGES, MORTAL, GUARDED, BROKER = "four-ranges", "damages", "mortal", "guarded", "broker"
READS = "reads"
ACCESS = "access"
GROUPS = {
    **dict.fromkeys(
        ("agent", "arrival", "console_points", "golden_pages", "raw", "requests", "simulated"), FOUR_RANGES
    ),
    **dict.fromkeys(("backfill", "faults", "log_backup", "tenant_ends", "undecodable"), DAMAGES),
    **dict.fromkeys(("crash", "lifecycle"), MORTAL),
    **dict.fromkeys(("auth", "console_auth"), GUARDED),
    **dict.fromkeys(
        (
            "test_kafka_sink",
            "test_kafka_protocols",
            "test_secured_kafka",
            "test_verified_topics",
            "test_several_shards_on_kafka",
            "test_topic_that_grows",
            "test_consume_command",
        ),
        BROKER,
    ),
    **dict.fromkeys(
        (
            "test_points",
            "test_api_service",
            "test_insight_routes",
            "test_doors",
            "test_client_reads",
            "test_spark_source",
            "test_reading_commands",
            "test_restore_command",
            "test_platform_restore_calls",
            "test_undo_mariadb",
        ),
        READS,
    ),
    **dict.fromkeys(("test_access_ends", "test_access_routes", "test_openapi_answers"), ACCESS),
}
# Longest first. Platforms take all of a core, and tests of lost answers, brokers and leases wait: at the beginning both
# run side by side. What is not here takes less than these.
LONGEST = (
    FOUR_RANGES,
    DAMAGES,
    READS,
    BROKER,
    "tests/service/storage/test_lost_answers.py",
    MORTAL,
    "tests/e2e/test_e2e_shared.py",
    "tests/service/service/test_traces.py",
    "tests/e2e/test_e2e_changefeed.py",
    "tests/service/meta/test_moves.py",
    "tests/service/changefeed/test_mysql_sink.py",
    "tests/e2e/test_e2e_console.py",
    GUARDED,
    ACCESS,
    "tests/service/client/test_spark_direct.py",
    "tests/service/meta/test_many_metas.py",
    "tests/service/storage/test_s3_store.py",
    "tests/service/verify/test_verify_truth_file.py",
    "tests/service/sorter/test_on_spark.py",
    "tests/service/agent/test_agent_nodes.py",
    "tests/simulation/ingest/test_log_backup_replay.py",
    "tests/service/backfill/test_backfill_runner.py",
    "tests/simulation/backfill/test_backfill_histories.py",
    "tests/service/agent/test_agent_process.py",
    "tests/simulation/api/test_api_golden.py",
    "tests/simulation/api/test_rows_golden.py",
    "tests/service/storage/test_object_store.py",
    "tests/service/dispatcher/test_store_moves.py",
    "tests/service/dispatcher/test_dispatching.py",
    "tests/service/meta/test_mysql_service.py",
    "tests/service/meta/test_mysql_migrations.py",
    "tests/service/restore/test_platform_mariadb.py",
    "tests/service/restore/test_platform_restore_on_spark.py",
    "tests/service/backfill/test_sql_backfills.py",
    "tests/service/verify/test_verify_command.py",
    "tests/service/sorter/test_class_archive.py",
    "tests/simulation/api/test_shared_work.py",
    "tests/simulation/api/test_undo_golden.py",
    "tests/simulation/api/test_net_golden.py",
    "tests/simulation/backfill/test_snapshot_pulls.py",
    "tests/simulation/platform/test_simulation.py",
    "tests/simulation/platform/test_scenarios.py",
    "tests/simulation/platform/test_kept_for_seconds.py",
    "tests/simulation/platform/test_log_backup_world.py",
    "tests/simulation/sorter/test_split_merge_histories.py",
    "tests/simulation/sorter/test_index_histories.py",
    "tests/simulation/api/test_api_scan.py",
    "tests/simulation/agent/test_agent_histories.py",
    "tests/service/api/test_held_bytes.py",
    "tests/service/deploy/test_k8s_spark.py",
)
OF_RANGES = {"[4-ranges": FOUR_RANGES, "[16-ranges": MORTAL}  # of test_e2e_golden_sets.py


def group_of(node_id: str) -> str:
    """The group of a test: of two tests of one group, one process runs both."""
    file = node_id.split("::", maxsplit=1)[0]
    stem = file.rpartition("/")[2].removesuffix(".py").removeprefix("test_e2e_")
    if stem == "golden_sets":
        return next((group for text, group in OF_RANGES.items() if text in node_id), node_id.rpartition("[")[2])
    return GROUPS.get(stem, file)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort by group, the longest first; not in random order."""
    if config.pluginmanager.hasplugin("randomly"):
        return
    rank = {group: number for number, group in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(group_of(item.nodeid), len(rank)))


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out group after group."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup | None:
    """In place of xdist's `loadfile`."""
    return ByGroup(config, log) if config.getoption("dist") == "loadfile" else None
