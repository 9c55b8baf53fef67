"""One task: its inbox, its ticks, and the state that it begins with. All modules but the task itself are pure."""
