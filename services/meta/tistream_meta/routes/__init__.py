"""The HTTP routes of the meta server. Each parses a request, calls a part of the server, and translates the result.
Routes decide nothing."""
