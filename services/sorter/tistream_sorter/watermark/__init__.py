"""Decides when a watermark counts: the slices of a task, the history of their changes, and watermark rows that wait
(design.md 3). Pure."""
