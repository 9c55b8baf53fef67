"""Compares what a feed has written (messages, files, tables of a database or of Iceberg) with the committed rows of its
tenant."""
