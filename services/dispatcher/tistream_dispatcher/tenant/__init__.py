"""The tenants of a dispatcher: their stores, one loop for each tenant, and deletion of consumed files."""
