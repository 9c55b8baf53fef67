"""The kernel of a shard: prewrites join their commits, rows are cut and sorted (design.md 3). Pure."""
