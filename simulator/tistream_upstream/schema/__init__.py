"""Makes what TiDB writes into TiKV: schema objects, keys, row values, and the keys that DDL jobs write."""
