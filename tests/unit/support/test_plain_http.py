"""The clients of tests: who is told to come again does so, and is told everything else at once."""

from __future__ import annotations

import httpx
import pytest

from support.plain_http import Again

LATER = httpx.Response(503, headers={"retry-after": "0"})


def asked(*answers: httpx.Response) -> tuple[int, int, list[bytes]]:
    """(the status that a caller gets, how many answers are left, the bodies that were sent)."""
    left, sent = list(answers), list[bytes]()

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        return left.pop(0)

    with httpx.Client(transport=Again(httpx.MockTransport(answer))) as http:
        status = http.post("http://api/v1/x", content=b"body").status_code
    return status, len(left), sent


def test_a_503_that_says_when_is_asked_again_with_the_same_body() -> None:
    assert asked(LATER, LATER, httpx.Response(201), httpx.Response(200)) == (201, 1, [b"body"] * 3)


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(503), httpx.Response(429, headers={"retry-after": "0"}), httpx.Response(404), httpx.Response(200)],
)
def test_any_other_answer_is_the_callers(answer: httpx.Response) -> None:
    assert asked(answer, httpx.Response(200))[:2] == (answer.status_code, 1)
