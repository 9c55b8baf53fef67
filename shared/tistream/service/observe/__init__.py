"""What a service reports about itself: logs, metrics, spans, usage of tenants."""
