"""What services send each other over HTTP: the bodies of requests and answers as pydantic models, and clients for the
calls."""
