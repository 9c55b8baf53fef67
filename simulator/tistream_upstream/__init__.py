"""A simulated TiKV cluster with TiDB that pushes change files and knows the truth. Not part of a platform."""
