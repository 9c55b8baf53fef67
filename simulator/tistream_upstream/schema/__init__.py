"""What TiDB writes: schema objects, keys, row values and the steps of DDL jobs."""
