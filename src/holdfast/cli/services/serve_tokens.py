"""Implements `holdfast serve token`: creates, lists and revokes the access tokens of a server."""

import importlib
import os
import re
import time
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.output import put, put_json, say
from holdfast.settings.read import SettingsRefused, state_root
from holdfast.settings.times import NotATime, seconds, stamp

FAILED, REFUSED = 1, 2
DAY_S = 86_400.0
EXPIRES_S_MAX = 366 * DAY_S
ROLES = ("reporter", "viewer", "operator", "admin")

app = App(help="Tokens: who may use the server, and for what.")

StateFolder = Annotated[str | None, Option("--state-dir", metavar="DIR", help="Folder of all jobs.")]
Json = Annotated[bool, Option("--json", help="Print one JSON document instead of text.")]
Name = Annotated[str, Argument("NAME")]


@app.callback()
def tokens() -> None:
    """Access tokens: who may use the server, and for what."""


@app.command()
def create(
    name: Name,
    role: Annotated[
        str,
        Option(
            "--role",
            metavar="ROLE",
            help="Role: viewer, operator, admin, or reporter (for jobs that stream to the server).",
        ),
    ],
    expires: Annotated[
        str, Option("--expires", metavar="TIME", help="How long it is valid, such as 12h or 30d.")
    ] = "30d",
    state_dir: StateFolder = None,
    json: Json = False,
) -> None:
    """Creates a token and prints it once: the server stores only its hash."""
    if role not in ROLES:
        raise BadParameter(f"{role!r} is not one of {', '.join(ROLES)}", param_hint="--role")
    module, expires_s = _module(), _expires(expires)
    now_s = time.time()
    try:
        secret = module.TokenFile(_folder(state_dir)).create(name, role, now_s, expires_s)
    except (module.TokenRefused, module.TokensUnusable) as error:
        say(str(error))
        raise Exit(FAILED) from error
    if json:
        put_json({"name": name, "role": role, "token": secret, "expires_at_s": now_s + expires_s})
        return
    put(secret)
    say(f"token {name}, {role}, valid until {stamp(now_s + expires_s)}; it is not shown again")


@app.command("list")
def list_(state_dir: StateFolder = None, json: Json = False) -> None:
    """Lists name, role and expiry of all tokens."""
    module, now_s = _module(), time.time()
    try:
        found = module.TokenFile(_folder(state_dir)).tokens()
    except module.TokensUnusable as error:
        say(str(error))
        raise Exit(FAILED) from error
    if json:
        rows = [
            {
                "name": one.name,
                "role": one.role,
                "created_at_s": one.created_at_s,
                "expires_at_s": one.expires_at_s,
            }
            for one in found
        ]
        put_json({"tokens": rows})
        return
    for one in found:
        end = "expired" if now_s >= one.expires_at_s else f"until {stamp(one.expires_at_s)}"
        put(f"{one.name:<24} {one.role:<9} {end}")
    if not found:
        say("there are no tokens: only you can use the server, from this machine")


@app.command()
def revoke(name: Name, state_dir: StateFolder = None) -> None:
    """Revokes a token. It ends at once, also in running servers, with the sessions that were started with it."""
    module = _module()
    try:
        module.TokenFile(_folder(state_dir)).revoke(name)
    except (module.TokenRefused, module.TokensUnusable) as error:
        say(str(error))
        raise Exit(FAILED) from error
    put(f"token {name} is revoked")


def _module() -> Any:
    """Imports the module of tokens only when needed."""
    return importlib.import_module("holdfast.web.access.tokens")


def _folder(state_dir: str | None) -> Path:
    try:
        return state_root(state_dir, os.environ) / "server"
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error


def _expires(text: str) -> float:
    """Parses a period of validity into seconds. Raises BadParameter."""
    days = re.fullmatch(r"(\d{1,4})d", text)
    try:
        expires_s = int(days[1]) * DAY_S if days else seconds(text)
    except NotATime as error:
        raise BadParameter(str(error), param_hint="--expires") from error
    if not 0 < expires_s <= EXPIRES_S_MAX:
        raise BadParameter(f"{text!r} is not between 1s and 366d", param_hint="--expires")
    return expires_s
