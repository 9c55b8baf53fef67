"""Follows what changes about tenants: the manifests of their tasks, their schema, and the ts up to which their rows are
complete."""
