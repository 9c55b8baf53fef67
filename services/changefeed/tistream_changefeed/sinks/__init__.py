"""Where a feed writes: sinks that take a step atomically with its progress."""
