"""Signed URLs are credentials, and stay out of logs."""

from __future__ import annotations

import logging

import httpx

from tistream_client.spark.bucket import WithoutQuery


def test_a_signed_url_is_logged_without_its_signature() -> None:
    def shown(url: str) -> str:
        named = ("GET", httpx.URL(url), 206)
        record = logging.LogRecord("httpx", logging.INFO, "", 0, "HTTP Request: %s %s %d", named, None)
        assert WithoutQuery().filter(record)
        return record.getMessage()

    assert shown("http://b/k?X-Amz-Date=1&X-Amz-Signature=ab") == "HTTP Request: GET http://b/k 206"
    assert shown("http://b/v1?ts=now") == "HTTP Request: GET http://b/v1?ts=now 206"
