"""What a shard of a feed decides: what is sent, in which atomic steps, and where it goes on after a crash. Pure."""
