"""Parses what TiDB stores about its schemas: keys of the `m` space, DDL jobs, TableInfo JSON, snapshots."""
