"""What a feed into Iceberg keeps beside its tables: its progress, the tables that it has created, their newest
commits, and its dead letters."""
