"""What TiDB writes: schema objects, keys, row values, the steps of DDL jobs."""
