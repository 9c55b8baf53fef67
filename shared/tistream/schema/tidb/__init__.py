"""Parses the schema data that TiDB stores: keys of the `m` space, DDL jobs, TableInfo, snapshots."""
