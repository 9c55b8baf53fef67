"""Admission of requests: access, rate limits, fair queues, memory budget; and metering of answers."""
