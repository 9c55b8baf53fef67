"""The code that Spark executors run: it reads row groups and pending parts, matches, and writes and merges segments and
runs. It imports no module of the driver."""
