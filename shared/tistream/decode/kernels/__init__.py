"""Compiled helpers: memory access, cursors, text output, Arrow buffers. They know nothing of TiDB."""
