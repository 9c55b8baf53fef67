"""Object stores: keys, backends, readers, and the commit protocol of manifests (design.md 4)."""
