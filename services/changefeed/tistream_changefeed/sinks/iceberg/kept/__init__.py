"""What a feed into Iceberg keeps beside its tables: which tables it has created, and its dead letters."""
