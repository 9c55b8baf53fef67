"""What a comparison of a feed's Iceberg tables reads: the tables, and what has become of those that were dropped."""
