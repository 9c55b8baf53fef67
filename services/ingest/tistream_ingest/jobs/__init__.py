"""The work of a release on Spark executors: one step of reading a log backup, in which its changes become change files.
Nothing of the driver is imported here."""
