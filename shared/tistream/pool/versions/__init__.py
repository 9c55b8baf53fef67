"""Reads versions of keys in the committed pool as of any ts: a range of keys, single keys, or the history of one key.

Modules: `plan` chooses row groups, and `merge` merges their rows (both pure). `reader` fetches row groups. `tail` sorts
the rows of segments that are not in a run yet. `scan` reads a range of keys, `lookup` single keys, and `net` what has
changed between two ts.
"""
