"""Code that runs in Spark executors: it reads row groups and parts, writes segments, and rewrites them. It imports no
module of the driver."""
