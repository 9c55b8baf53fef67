"""Opens the catalog of a feed into Iceberg. A tenant chooses what a catalog answers, and what the metadata of a table
states. So neither chooses code or addresses, or files outside the feed's warehouse: file access is built from the
settings of the feed and of the operator alone (lake_io.py), and of an answer only a few properties are used
(opened.py)."""
