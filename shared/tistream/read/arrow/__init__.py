"""Converts row events to Arrow record batches, for the API's answers and for readers of signed ranges."""
