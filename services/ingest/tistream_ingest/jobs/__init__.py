"""The work of a release, in which changes of a log backup become change files, on Spark executors. Nothing of the
driver is imported here."""
