"""Matches the entries of one shard: joins prewrites with their commits, selects the rows up to the watermark, and sorts
them (design.md 3). Pure."""
