"""The HTTP server of a service: the app, the authentication between services, TLS, limits of requests, start and
end."""
