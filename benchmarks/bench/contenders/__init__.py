"""What is measured, each to be run in a process of its own."""
