"""The Spark session of a sorter: its settings, its class archive, its authentication."""
