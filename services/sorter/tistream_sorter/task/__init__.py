"""One task: its inbox, its ticks, and its first state. No module does I/O. task.py and mailbox.py are shared by
threads."""
