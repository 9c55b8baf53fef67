"""Row events as columns, in the form in which filters, dispatchers and encoders process them. Pure."""
