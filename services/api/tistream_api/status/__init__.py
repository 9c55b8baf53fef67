"""Why a tenant is late, and who holds what of it."""
