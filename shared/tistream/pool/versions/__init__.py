"""Versions of keys in the committed pool: reads of a key range, of single keys and of one key's history, as of any ts.

`plan` chooses row groups, `merge` merges their rows (both pure), `reader` fetches row groups, `tail` sorts the rows of
segments that no run covers, `scan` reads a range of keys, and `lookup` reads single keys.
"""
