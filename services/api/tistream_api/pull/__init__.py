"""Answers pulls: determines where a pull begins, what a page or a stream contains, and when it ends."""
