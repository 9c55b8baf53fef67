"""The work of Spark executors: read row groups and parts, write segments, rewrite them. It imports no module of the
driver."""
