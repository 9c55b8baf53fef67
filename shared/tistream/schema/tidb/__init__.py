"""Parses what TiDB stores about schemas: keys of the `m` space, DDL jobs, TableInfo, snapshots."""
