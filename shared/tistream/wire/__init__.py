"""The HTTP contracts between services: the bodies of requests and answers, and clients."""
