"""What an answer is sent as."""

from __future__ import annotations

Piece = bytes | memoryview  # a view of bytes: what Arrow has made need not be copied to be sent
