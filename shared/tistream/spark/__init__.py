"""The Spark session of a process: its settings, its class archive, its authentication."""
