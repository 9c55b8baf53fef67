"""One task: its inbox, its ticks, and the state that it begins with. Pure, but for the task's lock."""
