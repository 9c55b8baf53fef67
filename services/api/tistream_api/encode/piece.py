"""The type of a piece of an answer's body."""

from __future__ import annotations

Piece = bytes | memoryview  # a memoryview of bytes lets Arrow buffers be sent without a copy
