"""A simulated TiKV cluster with TiDB on it: it pushes change files and knows the truth. Not part of a platform."""
