"""The object store: its interface and implementations, the keys of all objects, readers of objects, and the commit
protocol of manifests (design.md 4)."""
