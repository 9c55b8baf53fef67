"""Requests and answers about a tenant's sources, backfills, restores, changefeeds, secrets and territories."""
