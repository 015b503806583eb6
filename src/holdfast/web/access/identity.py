"""Defines the identity of a user, and how it was established."""

from typing import Literal

from msgspec import Struct

from holdfast.model.documents.actions import Role

# token: sent with each request. The others come along by themselves, so a page of another site could make a browser use
# them: actions need a CSRF token besides.
By = Literal["token", "cookie", "proxy", "loopback"]


class Identity(Struct, frozen=True, kw_only=True):
    """An authenticated user. `csrf`: the CSRF token that an action must carry; empty if none is needed.

    `address`: address of the browser, as far as known.
    """

    name: str
    role: Role
    by: By
    address: str
    csrf: str = ""
    expires_at_s: float | None = None
