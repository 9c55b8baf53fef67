"""The kernel of a shard: it joins prewrites with their commits, cuts at the window, and sorts (design.md 3). Pure."""
