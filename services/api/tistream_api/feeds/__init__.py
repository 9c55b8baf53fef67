"""The HTTP routes of changefeeds, their request bodies, and their answers."""
