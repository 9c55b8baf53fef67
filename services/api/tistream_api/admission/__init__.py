"""Decides whether a request is served now: access, rate limits, fair queues, the memory budget. It also counts what
answers send."""
