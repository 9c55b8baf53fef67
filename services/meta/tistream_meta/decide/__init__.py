"""Pure decisions: which sorter gets a task and which dispatcher a store, splits and merges, liveness of nodes, who
holds shards of changefeeds."""
