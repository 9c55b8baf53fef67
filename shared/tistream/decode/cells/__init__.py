"""Locates the cells of a row value and decodes them by column type."""
