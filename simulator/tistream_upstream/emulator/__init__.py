"""An unmodified TiKV cluster over gRPC: PD and stores with change streams (facts in the docstrings of `model`)."""
