"""Secrets of tenants. They are encrypted ("sealed") where they enter the platform, and decrypted only where a
changefeed connects to its sink. Pure."""
