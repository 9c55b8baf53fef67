"""Writes a feed into Iceberg tables: the changes of each table (`t__changes`, append-only), the table itself (`t`), or
both.

* The worker writes Parquet files with the field ids of the table, and commits them with pyiceberg. A commit is one
  snapshot. Its summary says which feed wrote it, up to which position (`tistream.cursor`, `tistream.resolved_ts`), and
  under which fence; properties of the table say the same.
* A commit replaces the snapshot that this worker has read or written last, and no other. pyiceberg's own retries are
  off (`commit.retry.num-retries`), because they would accept the files of a worker that is late.
* Rows are collected for `flush-interval`. A window of several tables is committed in three steps: the feed's own table
  `tistream.CLUSTER__TENANT__FEED` names the tables (`begun`); each table is committed; the feed's table gets the
  progress. After a crash between these steps the rows are read again, and each table leaves out those that its own
  cursor has passed. So each row is in each table once (invariant 38).
* A worker that takes over first commits its fence to the feed's table, so that an older one can begin no window, and
  then to the tables of the window that was begun, so that it can end none (invariant 40). A DDL is such a window of its
  own. A catalog renames without a condition: the table is read right before, and put back if another one was renamed.
* Cursors of tables lie between two commit_ts: a table shows whole transactions only. With several tables the same
  resolved_ts is in all of them once the feed's table has it.
* A column keeps its field id while TiDB keeps the column's id (table_schema.py). Renames, drops and additions of
  columns change the schema alone; a default for rows that are there, a TRUNCATE or an update rewrites files.
* The table itself is a list of files that are sorted by key. A commit reads the files in whose ranges keys have
  changed, and writes them again, in the same snapshot that removes them (key_ranges.py).
* Old snapshots expire in the commits (upkeep.py). Once a day, files that no snapshot names and that are older than a
  day are deleted: those of a worker that was killed before its commit, and those of expired snapshots. A new table has
  a directory with a random name, which a rename leaves as it is; only such directories are cleared.
* Properties of the feed's own table name the tables that the feed has created, by their ids: one that another program
  has dropped or replaced fails the feed, and is not created again without the rows that it had.
* Properties have the sequence number of the newest commit to each table: one that another program has rolled back, or
  restored from an older state, fails the feed. They have the cursor and the progress too, so nothing is read again
  after another program has made all snapshots of the feed expire.
* A table has the rows of one table of TiDB, whose name is in its properties. A table of TiDB whose Iceberg table would
  be this one stops, and the others go on. So does a table of which a DDL is refused. A table that has stopped states
  its own position, so it has each row once when it goes on.
* DROP, TRUNCATE and EXCHANGE PARTITION move rows without events. The worker reads the rows that come or go from the
  pool, and writes them in the commit of the DDL (mirrored/moved_partitions.py).
* A change of a type that Iceberg cannot have begins a new version of the table itself (`t__v2`), with the rows as of
  the DDL, which the worker reads from the pool (mirrored/lake_ddls.py). The property `tistream.next_version` of the
  version before names it. That version stays as it was, under a tag (`v1`); any program may drop it.
* With `delta-share`, the changes of a table itself wait in a second table (`t_delta`), until they are more than this
  share of the files that they change. All of them are then taken at once, so that the table alone still shows one ts.
  mirrored/deltas.py says why a reader of both tables is right at any moment. The view `t_now` joins them: it is stored
  in a REST catalog; a catalog in SQL has no views, so the delta has its query as the property `tistream.now`.

The contract for the table itself asks for rewrites by Spark; this is missing.
"""
