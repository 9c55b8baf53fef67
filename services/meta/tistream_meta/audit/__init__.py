"""The audit log: what was changed, by which actor, from which address, and the values before and after
(docs/adr/0022-an-audit-log.md).
"""
