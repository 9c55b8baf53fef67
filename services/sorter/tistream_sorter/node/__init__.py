"""The process: which tasks it holds, and the threads that run their ticks. I/O."""
