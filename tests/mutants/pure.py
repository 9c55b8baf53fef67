"""The modules that decide without I/O, the tests of each, and what of their code decides anything."""

from __future__ import annotations

import ast
from pathlib import Path

from mutants.tree import FOLDERS, ROOT

MODULES: dict[str, tuple[str, ...]] = {
    "tistream.model.span": ("test_router.py", "test_slices.py", "test_shard_cuts.py"),
    "tistream.model.ts": ("test_window_edges.py",),
    "tistream.format.task_view": ("test_manifest_log.py",),
    "tistream.storage.numbered_log": ("test_numbered_log.py", "test_manifest_log.py", "test_durable_log.py"),
    "tistream.schema.history": ("test_history.py", "test_history_model.py"),
    "tistream.schema.timeline": ("test_timeline.py",),
    "tistream.pool.lineage": ("test_lineage.py",),
    "tistream_dispatcher.stores.chain": ("test_chain.py", "test_consumed.py"),
    "tistream_dispatcher.delivery.router": ("test_router.py",),
    "tistream_dispatcher.delivery.consumed": ("test_consumed.py",),
    "tistream_dispatcher.delivery.window": ("test_window.py",),
    "tistream_dispatcher.delivery.receivers": ("test_window.py", "test_delivery.py", "test_store_feed.py"),
    "tistream_dispatcher.stores.pacing": ("test_pacing.py",),
    "tistream_sorter.watermark.slices": ("test_slices.py", "test_last_entries.py"),
    "tistream_sorter.watermark.slice_cuts": ("test_slices.py",),
    "tistream_sorter.watermark.watermark_rows": ("test_slices.py", "test_review_waiting.py", "test_last_entries.py"),
    "tistream_sorter.state.positions": ("test_chain_positions.py", "test_common_positions.py", "test_closed_chains.py"),
    "tistream_sorter.task.seal_orders": ("test_seals.py",),
    "tistream_sorter.state.task_state": ("test_seals.py", "test_heirs_progress.py"),
    "tistream_sorter.task.from_parents": ("test_seals.py", "test_heirs_progress.py"),
    "tistream_sorter.task.inbox": ("test_bounds_and_idleness.py",),
    "tistream_sorter.task.task_machine": ("test_bounds_and_idleness.py", "test_seals.py", "test_progress_told.py"),
    "tistream_sorter.task.tick": ("test_progress_told.py", "test_locks_over_ticks.py", "test_loud_stops.py"),
    "tistream_sorter.upkeep.gc_plan": ("test_pool_collection.py",),
    "tistream_sorter.upkeep.compaction_plan": ("test_compaction_plans.py",),
    "tistream_sorter.upkeep.retention": ("test_retention.py",),
    "tistream_sorter.upkeep.index_plan": ("test_index_plan.py",),
    "tistream_sorter.upkeep.version_index": ("test_index_plan.py",),
    "tistream_sorter.match.versions": ("test_versions.py", "test_index_merge.py"),
    "tistream_ingest.plan.cuts": ("test_plans.py",),
    "tistream_ingest.plan.rules": ("test_plans.py", "test_failures.py"),
    "tistream_ingest.plan.spans": ("test_plans.py",),
    "tistream_ingest.plan.checkpoint_state": ("test_plans.py", "test_failures.py"),
    "tistream.logbackup.metadata": ("test_metadata.py",),
    "tistream.logbackup.memcomparable": ("test_metadata.py", "test_write_records.py"),
    "tistream.logbackup.meta_name": ("test_metadata.py",),
    "tistream.restore.undo_plan": ("test_undo_plan.py",),
    "tistream.restore.undo_sql": ("test_undo_sql.py",),
    "tistream.restore.fingerprint": ("test_restore_fingerprint.py",),
    "tistream_sorter.match.kernel": ("test_kernel.py", "test_review_pipelined.py"),
    "tistream_sorter.match.fast_match": ("test_fast_path.py",),
    "tistream_sorter.match.exact_match": ("test_kernel.py", "test_review_pipelined.py", "test_fast_path.py"),
    "tistream_sorter.match.order": ("test_fast_path.py",),
    "tistream_sorter.match.liveness": ("test_kernel.py", "test_review_pipelined.py"),
    "tistream_sorter.jobs.pruning": ("test_huge_pruning.py",),
    "tistream_schema.expected_tasks": ("test_expected_tasks.py",),
    "tistream_meta.decide.balance": ("test_policies.py", "test_store_policy.py"),
    "tistream_meta.decide.task_policy": ("test_policies.py",),
    "tistream_meta.decide.store_policy": ("test_store_policy.py",),
    "tistream_meta.decide.task_phases": ("test_scheduling_model.py",),
    "tistream_meta.decide.liveness": ("test_liveness.py", "test_policies.py", "test_store_policy.py"),
    "tistream_meta.decide.split_merge": ("test_splits_and_merges.py", "test_withdrawn_merges.py"),
    "tistream_api.auth.access": ("test_access_decisions.py",),
    "tistream_api.status.stage_lags": ("test_stage_lags.py",),
    "tistream_api.admission.request_queue": ("test_request_queue.py",),
    "tistream_api.pull.decode_slots": ("test_working.py",),
    "tistream_api.admission.reject_throttle": ("test_refusals.py",),
    "tistream.read.cursor": ("test_api_cursor.py",),
    "tistream.read.plan": ("test_api_plan.py",),
    "tistream.read.events": ("test_api_row_events.py", "test_pull_edges.py"),
}


def path_of(module: str) -> Path:
    """A module's file, relative to the repository. Raises StopIteration if there is none."""
    file = Path(*module.split(".")).with_suffix(".py")
    return next(Path(folder) / file for folder in FOLDERS if (ROOT / folder / file).is_file())


def meaning_of(code: str) -> str:
    """What of some code decides anything. Raises SyntaxError."""
    return ast.dump(_Bare().visit(ast.parse(code)))


class _Bare(ast.NodeTransformer):
    """Leaves out annotations, assertions, error messages, `strict=`, protocols and how classes are declared."""

    def visit_Assert(self, node: ast.Assert) -> ast.Pass:
        return ast.Pass()

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        self.generic_visit(node)
        node.annotation = ast.Constant(None)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        node.decorator_list = []
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            node.body = [ast.Pass()]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        return ast.keyword(node.arg, ast.Constant(None)) if node.arg == "strict" else node
