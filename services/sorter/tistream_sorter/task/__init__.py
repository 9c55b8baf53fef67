"""One task: its inbox, its ticks, and the state that it begins with. All but the task itself is pure."""
