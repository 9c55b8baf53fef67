"""Compares the messages in the topics of a feed with the committed rows of its tenant."""
