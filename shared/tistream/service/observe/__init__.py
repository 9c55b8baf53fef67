"""Reports about a service: logs, metrics, spans, usage."""
