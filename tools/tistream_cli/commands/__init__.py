"""Commands that call a platform's operator routes, and `inspect`."""
