"""The sorter's Spark session, and the command that makes Spark's class archive."""
