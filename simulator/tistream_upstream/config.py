"""What kind of cluster to simulate. Every rate is per second of the cluster's own time."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.model.ids import TenantKey


@dataclass(frozen=True, slots=True)
class TxnMix:
    """Shares of transactions, each of all of them; what is left is ordinary two-phase commit, pessimistic.

    `one_phase` holds for transactions that touch one region. `abandoned` ones are rolled back after some of their
    prewrites, or before any; `orphaned` of these have a client that died: readers roll back the primary's key, and the
    others one by one, `late_ms` later. `late_secondaries` are committed that late. `long` ones prewrite `long_ms` after
    their start. `bulk` ones are pipelined: several flushes, `bulk_rows` rows. Of `rewritten` ones the primary's lock is
    written again and again, as heartbeats and readers do. `row_locks` ones lock rows that they do not change.
    """

    one_phase: float = 0.2
    async_commit: float = 0.35
    optimistic: float = 0.15
    abandoned: float = 0.03
    lock_only: float = 0.02
    long: float = 0.01
    long_ms: tuple[int, int] = (500, 6_000)
    bulk: float = 0.002
    bulk_rows: int = 200
    huge_every_ms: int = 60_000
    huge_rows: int = 2_000
    late_secondaries: float = 0.02
    late_ms: tuple[int, int] = (200, 3_000)
    orphaned: float = 0.1
    rewritten: float = 0.02
    row_locks: float = 0.02
    sourced: float = 0.01


@dataclass(frozen=True, slots=True)
class Churn:
    """Weights of what happens to regions and agents, `per_s` together; and how stores differ.

    `batch_split`: of splits, how many are into three regions or more at one entry. `gone`: a store goes for good, as
    long as half of them stay. `lost_push`: of restarts, crashes and stores gone, how many lose what was not pushed.
    `new_chain`: of those, how many begin a new chain. `late_upload`: of those, how many have a file under way that
    lands when the next agent's is there. `down_ms`: how long a crashed store stays away.
    """

    per_s: float = 0.2
    split: float = 1.0
    batch_split: float = 0.2
    merge: float = 0.8
    move: float = 1.5
    restart: float = 0.3
    crash: float = 0.15
    gone: float = 0.0
    lost_push: float = 0.7
    new_chain: float = 0.5
    late_upload: float = 0.0
    down_ms: tuple[int, int] = (500, 5_000)
    repeated_file: float = 0.01
    unannounced: float = 0.02
    idle_untold: float = 0.0
    slow_store: float = 0.02
    slow_ms: tuple[int, int] = (500, 4_000)
    skew_ms: int = 200


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A whole cluster. With the same config, seed, moments and answers it does the same, to the byte.

    `rows_max` live rows a table, then inserts are paired with deletes. `handles` are given to the tables in turn.
    `history_ms` is how much older than what is not pushed yet the versions may be that are kept for scans.
    `ddl_cancelled`: of renames, how many are cancelled once they have shown. `warm_ms` of load before the snapshot,
    whose rows are there from the start.
    """

    tenant: TenantKey = field(default_factory=lambda: TenantKey("1", "simulated"))
    begin_ms: int = 1_760_000_000_000
    stores: int = 3
    regions: int = 12
    databases: int = 2
    tables: int = 8
    columns: int = 8
    rows_per_s: float = 1_000.0
    txns_per_s: float = 250.0
    rows_max: int = 5_000
    bursts: float = 0.0
    burst_ms: int = 400
    indexed: float = 0.25
    handles: tuple[str, ...] = ("int", "int", "common", "rowid")
    mix: TxnMix = TxnMix()
    churn: Churn = Churn()
    push_ms: int = 1_000
    truth_ms: int = 1_000
    ddl_per_min: float = 0.0
    ddl_cancelled: float = 0.0
    history_ms: int = 30_000
    warm_ms: int = 0
    rows_per_group: int = 65_536
    group_bytes: int = 8 << 20
    keep_truth: bool = False
