"""The contracts between services: bodies of requests and answers, and clients for them."""
