"""Whether a request is let in now: access, rate limits, fair queues, memory; and how it is metered."""
