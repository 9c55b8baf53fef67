"""The agent's calls to PD and TiKV: timestamps and regions, change streams, the hold on garbage collection (GC), and
the schema in TiDB's `m` keys."""
