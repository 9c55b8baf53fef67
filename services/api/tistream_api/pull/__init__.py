"""Answers pulls: finds the position where a pull begins, what a page or a stream contains, and when it ends."""
