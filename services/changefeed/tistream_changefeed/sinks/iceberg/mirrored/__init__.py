"""What a feed into Iceberg does with the tables themselves (not with their changes): their rows, the deltas where small
changes wait (`t_delta`), DDLs, and the new version of a table (`t__v2`) after a change of a type that Iceberg cannot
have."""
