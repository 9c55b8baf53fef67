"""The pool of committed rows: segments, their writer and readers, and the lineage of tasks."""
