"""The versions of every schema of a tenant, and the DDL events between them (design.md 5). Pure."""
