"""`holdfast serve`: the server of the API and the page, and its tokens."""

import importlib
import os
import re
import time
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.line.flags import App, Argument, BadParameter, Context, Exit, Option
from holdfast.cli.line.output import put, put_json, say
from holdfast.settings.read import SettingsRefused, fleet_root, state_root
from holdfast.settings.times import NotATime, seconds, stamp

FAILED, REFUSED = 1, 2
PORT = 8470
EXTRA = "this command needs the extra for servers: pip install 'holdfast[server]'"
DAY_S = 86_400.0

app = App()
token_app = App(help="Tokens: who may use the server, and for what.")

StateFolders = Annotated[
    list[str] | None,
    Option(
        "--state-dir", metavar="DIR", help="Folder of all jobs; again for more folders. [HOLDFAST_STATE_DIR]"
    ),
]
StateFolder = Annotated[str | None, Option("--state-dir", metavar="DIR", help="Folder of all jobs.")]
Json = Annotated[bool, Option("--json", help="One JSON document instead.")]
Name = Annotated[str, Argument("NAME")]


@app.callback(invoke_without_command=True)
def serve(
    context: Context,
    state_dir: StateFolders = None,
    fleet_dir: Annotated[
        str | None, Option("--fleet-dir", metavar="DIR", help="Folder of the node book. [HOLDFAST_FLEET_DIR]")
    ] = None,
    address: Annotated[
        str, Option("--address", metavar="HOST:PORT", help="Where to listen; port 0: any free one.")
    ] = f"127.0.0.1:{PORT}",
    database: Annotated[
        str | None,
        Option(
            "--database",
            metavar="URL",
            help="Database of the index; default: a SQLite file in the state folder.",
        ),
    ] = None,
    root_path: Annotated[
        str,
        Option(
            "--root-path",
            metavar="/PATH",
            help="Path below which a proxy shows the server.",
            show_default=False,
        ),
    ] = "",
    tls_cert: Annotated[
        Path | None, Option("--tls-cert", metavar="FILE", help="Certificate (PEM) for HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, Option("--tls-key", metavar="FILE", help="Its private key.")] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="Proxy, or network, whose X-Forwarded headers are believed.",
        ),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        Option(
            "--host-name", metavar="NAME", help="Name under which browsers reach the server; again for more."
        ),
    ] = None,
    user_header: Annotated[
        str,
        Option(
            "--user-header",
            metavar="NAME",
            help="Header in which a trusted proxy names the user.",
            show_default=False,
        ),
    ] = "",
    user_role: Annotated[
        str,
        Option("--user-role", metavar="ROLE", help="Role of users whom the proxy names and no token does."),
    ] = "viewer",
    lang: Annotated[
        str | None, Option("--lang", metavar="en|zh", help="Language; default: the browser's.")
    ] = None,
) -> None:
    """Serves the page and the API of all jobs of a state folder. Without tokens: only to you, on this machine."""
    if context.invoked_subcommand is not None:
        return
    host, port = host_and_port(address)
    if user_role not in ("viewer", "operator", "admin"):
        raise BadParameter(f"{user_role!r} is not viewer, operator or admin", param_hint="--user-role")
    if lang not in (None, "en", "zh"):
        raise BadParameter(f"{lang!r} is not en or zh", param_hint="--lang")
    if root_path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", root_path):
        raise BadParameter(f"{root_path!r} is no path such as /holdfast", param_hint="--root-path")
    if user_header and not trusted_proxy:
        raise BadParameter(
            "a header of users is believed of a --trusted-proxy only", param_hint="--user-header"
        )
    if tls_key is not None and tls_cert is None:
        raise BadParameter("a key needs its --tls-cert", param_hint="--tls-key")
    module = server_module()
    settings = module.ServerSettings(
        state_dirs=_folders(state_dir),
        fleet_dir=_fleet(fleet_dir, state_dir),
        host=host,
        port=port,
        database=database or "",
        root_path=root_path,
        tls_cert=tls_cert,
        tls_key=tls_key,
        trusted_proxies=tuple(trusted_proxy or ()),
        names=tuple(host_name or ()),
        user_header=user_header,
        user_role=user_role,
        lang=lang or "",
    )
    try:
        module.run(settings, lambda at: put(f"serving {at}", now=True))
    except module.CannotServe as error:
        say(str(error))
        raise Exit(REFUSED) from error


@token_app.callback()
def tokens() -> None:
    """Tokens: who may use the server, and for what."""


@token_app.command()
def create(
    name: Name,
    role: Annotated[str, Option("--role", metavar="ROLE", help="viewer, operator or admin.")],
    expires: Annotated[
        str, Option("--expires", metavar="TIME", help="How long it is valid, such as 12h or 30d.")
    ] = "30d",
    state_dir: StateFolder = None,
    json: Json = False,
) -> None:
    """Makes a token and prints it. It is shown this once: only its hash is kept."""
    if role not in ("viewer", "operator", "admin"):
        raise BadParameter(f"{role!r} is not viewer, operator or admin", param_hint="--role")
    module, expires_s = _tokens(), _expires(expires)
    now_s = time.time()
    try:
        secret = module.TokenFile(_server_folder(state_dir)).create(name, role, now_s, expires_s)
    except (module.TokenRefused, module.TokensUnusable) as error:
        say(str(error))
        raise Exit(FAILED) from error
    if json:
        put_json({"name": name, "role": role, "token": secret, "expires_at_s": now_s + expires_s})
        return
    put(secret)
    say(f"token {name}, {role}, valid until {stamp(now_s + expires_s)}; it is not shown again")


@token_app.command("list")
def list_(state_dir: StateFolder = None, json: Json = False) -> None:
    """Names, roles and ends of all tokens."""
    module, now_s = _tokens(), time.time()
    try:
        found = module.TokenFile(_server_folder(state_dir)).tokens()
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
        say("there are no tokens: only you may use the server, on its own machine")


@token_app.command()
def revoke(name: Name, state_dir: StateFolder = None) -> None:
    """Ends a token at once, in running servers too, with the sessions that it has begun."""
    module = _tokens()
    try:
        module.TokenFile(_server_folder(state_dir)).revoke(name)
    except (module.TokenRefused, module.TokensUnusable) as error:
        say(str(error))
        raise Exit(FAILED) from error
    put(f"token {name} is revoked")


app.add("token", token_app)


def host_and_port(text: str) -> tuple[str, int]:
    """("127.0.0.1", 8470), of "127.0.0.1:8470", "[::1]:8470", ":8470", "8470" or "gpu-1". raises: BadParameter"""
    host, colon, port = text.rpartition(":")
    if not colon and text.isdigit():
        host, port = "", text
    elif not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise BadParameter(f"{text!r} is no address such as 127.0.0.1:{PORT}", param_hint="--address")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def server_module() -> Any:
    """By its name: it is in an extra. raises: Exit, with what to install"""
    try:
        return importlib.import_module("holdfast.web.main")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        say(f"{EXTRA} ({error})")
        raise Exit(REFUSED) from error


def _tokens() -> Any:
    return importlib.import_module("holdfast.web.access.tokens")


def _folders(given: list[str] | None) -> tuple[Path, ...]:
    try:
        if not given:
            return (state_root(None, os.environ),)
        return tuple(dict.fromkeys(state_root(one, os.environ) for one in given))
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error


def _fleet(flag: str | None, state_dir: list[str] | None) -> Path:
    try:
        return fleet_root(flag, state_dir[0] if state_dir else None, os.environ)
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error


def _server_folder(state_dir: str | None) -> Path:
    return _folders([state_dir] if state_dir else None)[0] / "server"


def _expires(text: str) -> float:
    """raises: BadParameter"""
    days = re.fullmatch(r"(\d{1,4})d", text)
    try:
        expires_s = int(days[1]) * DAY_S if days else seconds(text)
    except NotATime as error:
        raise BadParameter(str(error), param_hint="--expires") from error
    if not 0 < expires_s <= 366 * DAY_S:
        raise BadParameter(f"{text!r} is not within 1s and 366d", param_hint="--expires")
    return expires_s
