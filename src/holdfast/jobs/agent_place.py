"""Determines from an agent's environment which job it belongs to, and where its controller is.

Starts nothing.

Variables: HOLDFAST_JOB_FOLDER, HOLDFAST_CONTROLLER, HOLDFAST_SECRET_FILE, HOLDFAST_LINK_FINGERPRINT,
HOLDFAST_NODE, HOLDFAST_ADDRESS (docs/settings.md).
"""

import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.link.tls import ClientTls
from holdfast.settings.read import state_places, state_root

CONTROLLER, SECRET, TOKEN = "controller.json", "secret", "shared-token"
WANTED = "line-wanted"  # requests that a single-machine job listens (supervise/line_on_demand.py)
FOLDER_ENV, CONTROLLER_ENV, SECRET_ENV = "HOLDFAST_JOB_FOLDER", "HOLDFAST_CONTROLLER", "HOLDFAST_SECRET_FILE"
NODE_ENV, ADDRESS_ENV = "HOLDFAST_NODE", "HOLDFAST_ADDRESS"
LIFE_PORT_ENV = "HOLDFAST_LIFE_PORT"
FINGERPRINT_ENV = "HOLDFAST_LINK_FINGERPRINT"
TOKEN_BYTES_MAX = 256


class AgentRefused(Exception):
    """Error: the environment does not describe an agent. The message says what is missing."""


class AgentPlace(Struct, frozen=True, kw_only=True):
    """The job and the controller of an agent.

    `job_folder`: the job's folder, or a local one if it is not visible on this node. `controllers`: addresses
    of the controller when the agent was started. `address`: address of this node for other nodes; empty if
    not given. `fingerprint`: of the controller's certificate at the start.
    """

    job_folder: Path
    node: str
    secret: bytes
    controllers: tuple[str, ...] = ()
    address: str = ""
    fingerprint: str = ""
    life_port: int = 0

    def where(self) -> list[tuple[str, int]]:
        """Returns possible addresses of the controller, the likeliest first. There may be several, because the
        controller may have moved to another node.
        """
        found = [*_read_controller(self.job_folder).addresses, *self.controllers]
        return list(dict.fromkeys(one for text in found if (one := _address(text)) is not None))

    def tls(self) -> ClientTls | None:
        """Returns the certificate that the controller must show; None means no TLS."""
        fingerprint = self.fingerprint or _read_controller(self.job_folder).fingerprint
        return ClientTls(fingerprint) if fingerprint else None

    def token(self) -> str:
        """Returns a text from the job's folder by which the controller sees that both share it; empty if
        there is none.
        """
        try:
            with (self.job_folder / TOKEN).open("rb") as file:
                return file.read(TOKEN_BYTES_MAX).decode("utf-8", "replace").strip()
        except OSError:
            return ""


def is_given(env: Mapping[str, str]) -> bool:
    """Returns True if an engine has started this agent."""
    return bool(env.get(FOLDER_ENV))


def agent_place(env: Mapping[str, str]) -> AgentPlace:
    """Reads job and controller of an agent from its environment. Raises AgentRefused."""
    given = Path(env[FOLDER_ENV])
    folder = given if given.is_dir() else _own_folder(given.name, env)
    controllers = tuple(one for one in env.get(CONTROLLER_ENV, "").replace(" ", "").split(",") if one)
    if not controllers and not (folder / CONTROLLER).exists():
        raise AgentRefused(
            f"the controller's address is unknown: {given / CONTROLLER} does not exist, and {CONTROLLER_ENV} is not set. "
            f"holdfast run starts agents itself; to start one by hand, set {CONTROLLER_ENV}=host:port"
        )
    return AgentPlace(
        job_folder=folder,
        node=env.get(NODE_ENV) or socket.gethostname(),
        secret=_secret(Path(env.get(SECRET_ENV) or given / SECRET)),
        controllers=controllers,
        address=env.get(ADDRESS_ENV, ""),
        fingerprint=env.get(FINGERPRINT_ENV, ""),
        life_port=int(port) if (port := env.get(LIFE_PORT_ENV, "")).isdigit() else 0,
    )


def _secret(path: Path) -> bytes:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AgentRefused(
            f"the job's secret cannot be read: {error}. Set {SECRET_ENV} to its file"
        ) from error
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise AgentRefused(f"{path} does not contain the secret of a job (64 hexadecimal digits)") from error


def _own_folder(job: str, env: Mapping[str, str]) -> Path:
    """Creates a local folder for the job on a node that does not see the job's folder.

    Raises AgentRefused if nothing can be written.
    """
    places = state_places(state_root(None, env))
    for place in places:
        folder = place / "jobs" / job
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        return folder
    raise AgentRefused(f"no folder can be written on this node: tried {', '.join(map(str, places))}")


def _read_controller(folder: Path) -> "_Controller":
    """Returns the addresses that the controller wrote into the job's folder when it last began to listen."""
    try:
        return msgspec.json.decode((folder / CONTROLLER).read_bytes(), type=_Controller)
    except (OSError, msgspec.MsgspecError):
        return _Controller()


class _Controller(Struct, frozen=True):
    """Content of the file in which a controller writes its addresses."""

    addresses: tuple[str, ...] = ()
    fingerprint: str = ""


def _address(text: str) -> tuple[str, int] | None:
    """Parses an address: ("10.0.0.1", 29400) for "10.0.0.1:29400"; IPv6 as "[fe80::1]:29400"."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return (host, int(port)) if host and port.isdigit() and int(port) < 1 << 16 else None
