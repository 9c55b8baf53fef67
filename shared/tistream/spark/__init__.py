"""The Spark session of a process: its settings, an archive of Java classes for a faster start, authentication."""
