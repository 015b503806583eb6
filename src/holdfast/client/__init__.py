"""Provides a typed client of the server's API for scripts and tests: `Client` blocks, `AsyncClient` is for
asyncio.

    from holdfast.client import Client

    with Client("http://127.0.0.1:8470", token=os.environ["HOLDFAST_TOKEN"]) as client:
        for row in client.all_jobs(state=["failed"]):
            print(row.name, row.sentence.text.en)

Needs the extra: pip install 'holdfast[client]'.
"""

from holdfast.client.errors import (
    ApiError,
    Conflict,
    NotAllowed,
    NotLoggedIn,
    NotReached,
    NotThere,
    TooManyRequests,
)
from holdfast.client.waiting import Client
from holdfast.client.with_asyncio import AsyncClient

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "Conflict",
    "NotAllowed",
    "NotLoggedIn",
    "NotReached",
    "NotThere",
    "TooManyRequests",
]
