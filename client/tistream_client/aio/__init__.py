"""The client for asyncio: the calls of `tistream_client.sync`, with `await` and `async for`."""
