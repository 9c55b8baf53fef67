"""The tenants of a dispatcher: one loop for each, which reads its stores; and deletion of files that no task needs any
more."""
