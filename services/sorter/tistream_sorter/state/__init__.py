"""The state of a task, which its manifests restate. Pure."""
