"""Sends an answer as an HTTP response."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tistream_api.pull.admitted import Answer


class AnswerResponse(StreamingResponse):
    """Sends an answer in pieces, and closes it in any case: at its end, after an error, or if its client has
    disconnected."""

    def __init__(self, answer: Answer, *, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(answer, headers=headers, media_type=media_type)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:  # no thread makes a piece any more: its end was waited for, cancelled or not
            self._answer.close()
