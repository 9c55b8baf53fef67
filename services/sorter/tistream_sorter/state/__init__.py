"""What a task's manifests restate. Pure."""
