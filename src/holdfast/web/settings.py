"""Defines the settings of a server: address, trusted proxies, and limits."""

from pathlib import Path

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a server. `rate_per_s`, `burst`: requests of one user.

    `failures_per_min`: wrong tokens from one address.

    `answer_s`: time limit of one document. `still_s`: how long a client may neither read nor send.
    """

    body_bytes: int = 1 << 20
    url_bytes: int = 8_192
    rate_per_s: float = 50.0
    burst: int = 200
    failures_per_min: int = 10
    answer_s: float = 30.0
    still_s: float = 15.0
    connections: int = 2_000
    viewers: int = 1_000
    viewer_queue: int = 256
    shells: int = 16
    links: int = 5_000
    commands: int = 4


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Settings of a server.

    `state_dirs`: folders of jobs; the first one also stores tokens, audit log and index.

    `job`: serve only this job. `names`: host names, besides this machine's own, under which browsers reach
    the server. `user_header`: header with the user authenticated by a trusted proxy; empty: none.
    `user_role`: role of such users.
    """

    state_dirs: tuple[Path, ...]
    fleet_dir: Path
    host: str = "127.0.0.1"
    port: int = 8470
    database: str = ""
    root_path: str = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    user_header: str = ""
    user_role: str = "viewer"
    lang: str = ""
    job: str = ""
    limits: Limits = Limits()

    @property
    def folder(self) -> Path:
        """Returns the folder for the server's own data: tokens, audit log, index."""
        return self.state_dirs[0] / "server"

    @property
    def is_tls(self) -> bool:
        return self.tls_cert is not None
