"""The logic that both clients share, without I/O: requests, answers, retries, errors, times."""
