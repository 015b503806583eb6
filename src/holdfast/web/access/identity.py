"""Who asks, and by what that is known."""

from typing import Literal

from msgspec import Struct

from holdfast.model.documents.actions import Role

# token: sent with each request. The others come along by themselves, so a page of another site could make a browser use
# them: actions need a CSRF token besides.
By = Literal["token", "cookie", "proxy", "loopback"]


class Identity(Struct, frozen=True, kw_only=True):
    """`csrf`: what has to come with an action; empty: nothing. `address`: of the browser, as far as is known."""

    name: str
    role: Role
    by: By
    address: str
    csrf: str = ""
    expires_at_s: float | None = None
