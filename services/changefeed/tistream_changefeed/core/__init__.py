"""The decisions of a shard, which is the part of a feed that one worker writes: which messages are sent, in which
atomic transactions, and where the shard continues after a crash. Pure."""
