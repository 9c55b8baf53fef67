"""Reads versions of keys in the committed pool as of any ts: a range of keys, single keys, or the history of one key.

`plan` chooses row groups, `merge` merges their rows (both pure), `reader` fetches row groups, `tail` sorts the rows of
segments that no run covers, `scan` reads a range of keys, `lookup` reads single keys, and `net` reads what a window has
changed.
"""
