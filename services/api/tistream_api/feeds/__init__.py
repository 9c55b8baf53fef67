"""Changefeeds, as users create and see them."""
