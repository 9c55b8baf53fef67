"""The HTTP side of a service: app, access between services, TLS, request limits, start and end."""
