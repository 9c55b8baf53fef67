"""What the agent has received from TiKV: which subscription an event belongs to, counters, rows for the next file, and
what a file may promise."""
