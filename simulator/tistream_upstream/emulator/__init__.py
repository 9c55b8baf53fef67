"""Emulates an unmodified TiKV cluster over gRPC: a PD, and stores with change streams. The modules of `model` say which
behaviour of TiKV they follow."""
