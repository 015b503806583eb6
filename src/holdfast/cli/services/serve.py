"""Implements `holdfast serve`: runs the server that provides the API and the web page."""

import importlib
import ipaddress
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.line.flags import App, BadParameter, Context, Exit, Option
from holdfast.cli.line.output import put, say
from holdfast.cli.services import serve_tokens
from holdfast.core.plurals import counted
from holdfast.journal.jobdir import StateDir
from holdfast.notify.config import ConfigRefused
from holdfast.notify.started import notifying
from holdfast.settings.read import SettingsRefused, fleet_root, state_root

REFUSED = 2
PORT = 8470
EXTRA = "the server needs optional dependencies: pip install 'holdfast[server]'"
USER_ROLES = ("viewer", "operator", "admin")

app = App()
app.add("token", serve_tokens.app)

StateFolders = Annotated[
    list[str] | None,
    Option("--state-dir", metavar="DIR", help="Folder of all jobs; repeatable. [HOLDFAST_STATE_DIR]"),
]
FleetFolder = Annotated[
    str | None, Option("--fleet-dir", metavar="DIR", help="Folder of the node book. [HOLDFAST_FLEET_DIR]")
]
Address = Annotated[
    str, Option("--address", metavar="HOST:PORT", help="Address to listen on; port 0: any free port.")
]
DatabaseUrl = Annotated[
    str,
    Option(
        "--database",
        metavar="URL",
        help="Database of the index; default: a SQLite file in the state folder.",
        show_default=False,
    ),
]
RootPath = Annotated[
    str,
    Option(
        "--root-path",
        metavar="/PATH",
        help="Path prefix under which a proxy serves the page.",
        show_default=False,
    ),
]
Certificate = Annotated[
    Path | None, Option("--tls-cert", metavar="FILE", help="Certificate (PEM) for HTTPS.")
]
Key = Annotated[
    Path | None, Option("--tls-key", metavar="FILE", help="Private key of the certificate (PEM).")
]
TrustedProxies = Annotated[
    list[str] | None,
    Option(
        "--trusted-proxy", metavar="ADDRESS", help="Proxy or network whose X-Forwarded headers are trusted."
    ),
]
HostNames = Annotated[
    list[str] | None,
    Option("--host-name", metavar="NAME", help="Host name by which browsers reach the server; repeatable."),
]
UserHeader = Annotated[
    str,
    Option(
        "--user-header",
        metavar="NAME",
        help="Header in which a trusted proxy gives the user name.",
        show_default=False,
    ),
]
UserRole = Annotated[
    str,
    Option("--user-role", metavar="ROLE", help="Role of users that the proxy names and that have no token."),
]
ServedLang = Annotated[
    str,
    Option(
        "--lang", metavar="en|zh", help="Language of the page; default: the browser's.", show_default=False
    ),
]
NotifyFile = Annotated[
    Path | None,
    Option(
        "--notify",
        metavar="FILE",
        help="Send notifications about all jobs, by the channels and rules in this file.",
    ),
]
Rate = Annotated[
    float, Option("--rate", metavar="N", help="Maximum number of requests of one user a second.", min=1)
]


@app.callback(invoke_without_command=True)
def serve(
    context: Context,
    state_dir: StateFolders = None,
    fleet_dir: FleetFolder = None,
    address: Address = f"127.0.0.1:{PORT}",
    database: DatabaseUrl = "",
    root_path: RootPath = "",
    tls_cert: Certificate = None,
    tls_key: Key = None,
    trusted_proxy: TrustedProxies = None,
    host_name: HostNames = None,
    user_header: UserHeader = "",
    user_role: UserRole = "viewer",
    lang: ServedLang = "",
    rate: Rate = 50.0,
    notify: NotifyFile = None,
) -> None:
    """Serves the web page and the API of all jobs in a state folder.

    Without tokens: only to you, on this machine.
    """
    if context.invoked_subcommand is not None:
        return
    host, port = host_and_port(address)
    _check(root_path, user_role, lang)
    _check_proxies(trusted_proxy or ())
    if user_header and not trusted_proxy:
        raise BadParameter(
            "--user-header needs --trusted-proxy: other clients could forge the header",
            param_hint="--user-header",
        )
    if tls_key is not None and tls_cert is None:
        raise BadParameter("--tls-key needs --tls-cert", param_hint="--tls-key")
    module = server_module()
    settings = module.ServerSettings(
        state_dirs=_folders(state_dir),
        fleet_dir=_fleet(fleet_dir, state_dir),
        host=host,
        port=port,
        database=database,
        root_path=root_path,
        tls_cert=tls_cert,
        tls_key=tls_key,
        trusted_proxies=tuple(trusted_proxy or ()),
        names=tuple(host_name or ()),
        user_header=user_header,
        user_role=user_role,
        lang=lang,
        limits=module.Limits(rate_per_s=rate, burst=int(4 * rate)),
    )
    _say_folders(settings.state_dirs)
    try:
        with notifying(notify, settings.state_dirs):
            module.run(settings, lambda at: put(f"serving {at}", now=True))
    except (module.CannotServe, ConfigRefused) as error:
        say(str(error))
        raise Exit(REFUSED) from error


def _say_folders(folders: Iterable[Path]) -> None:
    """Prints the served folders with their number of jobs, so that a wrong folder is noticed."""
    for folder in folders:
        if folder.is_dir():
            say(f"state folder {folder}: {counted(StateDir(folder).count(), 'job')}")
        else:
            say(
                f"state folder {folder} does not exist yet: it will be created by a job with "
                f"--state-dir {folder}"
            )


def host_and_port(text: str) -> tuple[str, int]:
    """Parses an address such as "127.0.0.1:8470", "[::1]:8470", ":8470", "8470" or "gpu-1".

    Raises BadParameter.
    """
    host, colon, port = text.rpartition(":")
    if not colon and text.isdigit():
        host, port = "", text
    elif not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise BadParameter(f"{text!r} is not an address such as 127.0.0.1:{PORT}", param_hint="--address")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def server_module() -> Any:
    """Imports the server's module, which needs an optional dependency. Raises Exit after printing what to install."""
    try:
        return importlib.import_module("holdfast.web.main")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        say(f"{EXTRA} ({error})")
        raise Exit(REFUSED) from error


def _check(root_path: str, user_role: str, lang: str) -> None:
    """Raises BadParameter if a flag has an invalid value."""
    if root_path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", root_path):
        raise BadParameter(f"{root_path!r} is not a path such as /holdfast", param_hint="--root-path")
    if user_role not in USER_ROLES:
        raise BadParameter(f"{user_role!r} is not one of {', '.join(USER_ROLES)}", param_hint="--user-role")
    if lang not in ("", "en", "zh"):
        raise BadParameter(f"{lang!r} is not en or zh", param_hint="--lang")


def _check_proxies(given: Iterable[str]) -> None:
    """Raises BadParameter if a trusted proxy is no address or network."""
    for one in given:
        try:
            ipaddress.ip_network(one, strict=False)
        except ValueError as error:
            raise BadParameter(
                f"{one!r} is not an address or network such as 10.0.0.0/8", param_hint="--trusted-proxy"
            ) from error


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
