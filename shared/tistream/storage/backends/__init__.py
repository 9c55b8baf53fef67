"""Object stores behind one interface: S3, a directory, memory."""
