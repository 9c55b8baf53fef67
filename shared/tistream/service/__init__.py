"""The shell of a service process: settings, HTTP server, start and end, logs, metrics and spans."""
