"""A simulated TiKV cluster with TiDB, for tests and trials. It pushes change files, and records the truth: the events
that a pull must return. It is no part of a platform."""
