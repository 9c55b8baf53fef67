"""Every mutant, in the order of the data's journey."""

from mutants.catalog.access import MUTANTS as ACCESS
from mutants.catalog.collecting import MUTANTS as COLLECTING
from mutants.catalog.collection import MUTANTS as COLLECTION
from mutants.catalog.commits import MUTANTS as COMMITS
from mutants.catalog.database import MUTANTS as DATABASE
from mutants.catalog.hostile import MUTANTS as HOSTILE
from mutants.catalog.huge import MUTANTS as HUGE
from mutants.catalog.locks import MUTANTS as LOCKS
from mutants.catalog.looking import MUTANTS as LOOKING
from mutants.catalog.matching import MUTANTS as MATCHING
from mutants.catalog.object_storage import MUTANTS as OBJECT_STORAGE
from mutants.catalog.routing import MUTANTS as ROUTING
from mutants.catalog.scheduling import MUTANTS as SCHEDULING
from mutants.catalog.schema_log import MUTANTS as SCHEMA_LOG
from mutants.catalog.seals import MUTANTS as SEALS
from mutants.catalog.serving import MUTANTS as SERVING
from mutants.catalog.slices import MUTANTS as SLICES
from mutants.catalog.stores import MUTANTS as STORES
from mutants.catalog.tenant_keys import MUTANTS as TENANT_KEYS
from mutants.catalog.ticks import MUTANTS as TICKS
from mutants.catalog.traces import MUTANTS as TRACES

MUTANTS = (
    *ROUTING,
    *STORES,
    *SLICES,
    *MATCHING,
    *TICKS,
    *HUGE,
    *COMMITS,
    *COLLECTING,
    *SCHEDULING,
    *SEALS,
    *SERVING,
    *LOOKING,
    *ACCESS,
    *HOSTILE,
    *OBJECT_STORAGE,
    *DATABASE,
    *COLLECTION,
    *SCHEMA_LOG,
    *TENANT_KEYS,
    *LOCKS,
    *TRACES,
)

# What a whole platform can feel: of these it is also said how many seeds of the simulation it takes.
SIMULATED = frozenset(
    {
        "newest-epoch-unconnected",
        "gap-skipped",
        "older-epoch-connects",
        "split-parent-forgotten",
        "split-parent-not-awaited",
        "scan-from-above-what-is-covered",
        "scan-vouches-for-keys-split-off",
        "resolved-goes-down",
        "highest-slice-is-the-watermark",
        "minimum-over-reporting-regions",
        "waiting-rows-forgotten",
        "waiting-rows-lost-by-a-restart",
        "watermarks-not-clipped",
        "watermarks-to-one-task",
        "missing-file-skipped",
        "announcement-trusted-without-the-chain",
        "positions-of-the-fastest-task",
        "lost-files-not-sent-again",
        "dead-below-the-watermark",
        "late-row-kills",
        "floor-without-the-slice",
        "pipelined-locks-die-like-others",
        "settled-repeat-becomes-pending",
        "lower-generation-wins",
        "rollback-forgotten",
        "commit-before-its-prewrite-lost",
        "repeats-not-looked-up",
        "row-at-low-flushed-again",
        "window-high-exclusive",
        "pending-lost-at-recovery",
        "pending-lost-at-checkpoint",
        "position-ahead-of-the-manifest",
        "progress-told-before-the-commit",
        "progress-above-what-is-pending",
        "segment-named-before-it-is-written",
        "damaged-row-group-skipped",
        "doubtful-commit-dropped",
        "fenced-task-goes-on",
        "idle-tenant-writes",
        "work-without-a-claim",
        "claim-against-a-newer-epoch",
        "commit-without-epoch-check",
        "read-back-skipped",
        "foreign-manifest-taken-for-the-own",
        "unknown-answer-is-success",
        "unknown-answer-is-failure",
        "doubt-forgotten",
        "floor-not-read-by-readers",
        "manifest-overwritten",
        "registry-log-forked",
        "epoch-not-raised-at-register",
        "epoch-not-raised-at-move",
        "old-meta-server-writes",
        "tasks-of-lost-sorters-stay",
        "stores-of-lost-dispatchers-stay",
        "found-stores-not-reported",
        "api-minimum-over-reporting-tasks",
        "api-ignores-the-schemas-progress",
        "api-resolved-before-manifests",
        "api-resolved-goes-down",
        "window-low-inclusive-in-the-api",
        "limit-cuts-a-commit-ts-with-resolved",
        "cursor-one-event-late",
        "schema-at-not-before",
        "ddl-window-low-inclusive",
        "registry-minimum-over-reporting-tasks",
        "registry-promise-before-manifests",
    }
)
