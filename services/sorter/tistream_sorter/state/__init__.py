"""The state of a task, which each of its manifests contains. Pure."""
