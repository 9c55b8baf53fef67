"""One task: its inbox, its ticks, and its first state. All modules except the task itself are pure."""
