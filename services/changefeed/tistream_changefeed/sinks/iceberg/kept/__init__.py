"""What a feed into Iceberg knows of its tables: which it has created, their newest commits, and its dead letters."""
