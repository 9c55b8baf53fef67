"""Makes what TiDB writes into TiKV: schema objects, keys, row values and the steps of DDL jobs."""
