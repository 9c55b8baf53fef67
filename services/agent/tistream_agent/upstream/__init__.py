"""The agent's side of PD and TiKV: calls, change streams, the GC hold and the schema in the meta keys."""
