"""What Spark executors do: read row groups and parts, write segments, rewrite them. Imports nothing of the driver."""
