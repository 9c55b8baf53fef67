"""Batches of row events as columns. Filters, dispatchers and encoders process them. Pure."""
