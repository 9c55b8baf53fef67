"""Two tenants under load, of which one is hostile: attacks, and what the other notices of them."""
