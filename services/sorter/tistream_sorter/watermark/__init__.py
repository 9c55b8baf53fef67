"""Decides when a watermark counts: slices, their history, and watermarks that wait (design.md 3). Pure."""
