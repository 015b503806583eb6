"""What a Slurm cluster of a test needs of this machine: programs, namespaces, free ports."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol", "tini", "ip", "nsenter", "unshare")
PATH = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
UP_S = 120.0


def missing() -> list[str]:
    """The programs of a cluster that are not installed here."""
    return [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]


def can_have_namespaces() -> bool:
    words = [
        "unshare",
        "--net",
        "--uts",
        "--pid",
        "--mount",
        "--fork",
        "--mount-proc",
        "mount",
        "-t",
        "sysfs",
    ]
    return os.getuid() == 0 and subprocess.run([*words, "sysfs", "/sys"], capture_output=True).returncode == 0


def opened_to_all(folder: Path) -> str:
    """Shell lines that let other users than root reach Python and this project, in a node alone."""
    needed = list(dict.fromkeys([sys.base_prefix, sys.prefix, str(HERE.parents[1])]))
    closed = {str(up) for path in needed for up in Path(path).parents if not up.stat().st_mode & 0o001}
    outer = [path for path in sorted(closed) if not any(path.startswith(f"{other}/") for other in closed)]
    inside = [path for path in needed if any(path.startswith(f"{other}/") for other in outer)]
    lines = []
    for number, path in enumerate(inside):
        (folder / "open" / str(number)).mkdir(parents=True, exist_ok=True)
        lines.append(f'mount --bind "{path}" "{folder}/open/{number}"')
    lines += [f'mount -t tmpfs -o mode=755 tmpfs "{path}"' for path in outer]
    for number, path in enumerate(inside):
        lines += [f'mkdir -p "{path}"', f'mount --bind "{folder}/open/{number}" "{path}"']
    return "\n".join(lines)


def wait_until(what, is_true, wait_s: float = UP_S):
    until_s = time.monotonic() + wait_s
    while not (answer := is_true()):
        assert time.monotonic() < until_s, f"waited {wait_s:g} s for {what() if callable(what) else what}"
        time.sleep(0.02)
    return answer


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def free_ports(count: int) -> list[int]:
    """Free now; all are held until the last is found, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
