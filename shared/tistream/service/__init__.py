"""What every service process has around its own code: settings, HTTP server, start and end, logs, metrics and spans."""
