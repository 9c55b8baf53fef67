"""The decisions of a shard of a feed: which messages are sent, in which atomic steps, and where the shard continues
after a crash. Pure."""
