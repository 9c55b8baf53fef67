"""The configuration of a simulated cluster. Rates are per second of the cluster's own clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.model.ids import TenantKey


@dataclass(frozen=True, slots=True)
class TxnMix:
    """The kinds of transactions, each as a share of all transactions. The rest are pessimistic two-phase commits.

    `one_phase`: 1PC, of transactions in one region. `abandoned`: rolled back before or after some prewrites. `orphaned`
    (a share of the abandoned ones): the client died; readers roll back the primary's key, and the other keys a few at a
    time, the first ones `late_ms` later. `late_secondaries`: secondaries are committed a few at a time, the first ones
    `late_ms` after the primary. `long`: prewrites come `long_ms` after the start. `bulk`: pipelined, with several
    flushes of about `bulk_rows` rows. `rewritten`: the primary's lock is written repeatedly, by heartbeats and readers.
    `row_locks`: locks rows without changing them. `sourced`: has a txn_source.
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
    """Random changes of regions, stores and agents. Together they happen `per_s` times a second; the other numbers are
    the weights of the kinds, and their properties.

    `batch_split`: share of splits into three regions or more at one log entry. `gone`: a store leaves for good, while
    half of the stores remain. `lost_push`: share of restarts, crashes and leaving stores that lose unpushed data.
    `new_chain`: share of those losses after which the store begins a new chain. `late_upload`: share of those losses in
    which an upload of the dead agent arrives after the next agent's first file. `down_ms`: duration of a crash.
    `idle_untold`: share of idle ranges that a file omits.
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
    """Configuration of a cluster. Equal config, seed, times of `advance` and answers give equal bytes.

    `rows_max`: the number of live rows of a table above which each insert comes with a delete. `handles`: kinds of row
    handles that the tables get in turn. `history_ms`: for how long versions are kept that a scan may still need.
    `ddl_cancelled`: share of renames that are cancelled after their first step. `warm_ms`: how long the load runs
    before the snapshot, so that there are rows at the start.
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
