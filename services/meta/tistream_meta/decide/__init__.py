"""Decisions without I/O: which sorter gets a task, which dispatcher a store and which worker the shards of a
changefeed; splits and merges of tasks; liveness of nodes."""
