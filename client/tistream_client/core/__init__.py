"""What both clients decide in the same way, without I/O: requests, answers, retries, errors, times."""
