"""The sorter process: the tasks that it holds, and the threads that run their ticks and background jobs. I/O."""
