"""The changefeed service: reads the committed pool of tenants and writes their changes into other systems."""
