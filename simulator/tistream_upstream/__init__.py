"""A simulated TiKV cluster with TiDB. It pushes change files, and records the truth: the events that a pull must
return. It is not part of a platform."""
