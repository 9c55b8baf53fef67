"""The pool, which is all committed rows of a tenant: writes and reads its segments and runs, and finds them across
tasks that were split or merged."""
