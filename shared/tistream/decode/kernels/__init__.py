"""Compiled helpers that are independent of TiDB's formats: memory access, reading of numbers, writing of text, Arrow
buffers."""
