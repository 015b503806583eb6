"""Simulates nodes on one machine, as plain processes or as namespaces with own network, host name and
processes.

A node is up while its *holder* process runs. In the kind `netns` the holder is the first process of the
node's namespaces, so killing it acts like a power failure: all other processes of the node end with it. The
nodes are connected to a bridge in a separate network namespace, by one veth pair with this machine; nothing
else of its network changes. Nodes outlive the process that started them, and are found again by their job's
folder.

source: namespaces(7), unshare(1), nsenter(1), ip-link(8), veth(4)
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.engines.nodes import EngineRefused

MARK = "HOLDFAST_LOCAL_NODE"  # in the environment of each process on a node: NODE@FOLDER
HOLDER, SWITCH = "holdfast-node", "holdfast-switch"
KEPT = "hosts.json"  # in the folder of nodes
TOOLS = ("ip", "unshare", "nsenter", "mount", "hostname")
NODES_MAX = 200  # one network has 254 addresses, one of them this machine's
NETWORKS = range(1, 255)
OF_THIS_MACHINE = 254
BOOT_S, TOOL_S, GONE_S = 20.0, 10.0, 10.0
SWEEP_ROUNDS_MAX = 50

_STARTED: list[
    subprocess.Popen[bytes]
] = []  # until each has ended: nodes outlive the object that started them

# As process 1 of its namespace the holder inherits every orphan there; it ignores SIGCHLD, so the kernel reaps them.
_HOLD = """
import os, signal
for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
os.write(1, b"up")
os.close(1)
while True:
    signal.pause()
"""
# A new /sys shows the node's own network but hides the control groups: they are mounted again where possible.
_SET_UP = """
set -e
node=$1 folder=$2 hosts=$3 names=$4 groups=$5 python=$6 hold=$7
hostname "$node"
mount --bind "$hosts" /etc/hosts
mount --bind "$names" /etc/resolv.conf 2>/dev/null || true
mount -t tmpfs tmpfs /dev/shm
if mount --rbind /sys/fs/cgroup "$groups" 2>/dev/null; then
    mount -t sysfs sysfs /sys
    mount --rbind "$groups" /sys/fs/cgroup
fi
ip link set lo up
exec "$python" -I -S -c "$hold" holdfast-node "$node" "$folder"
"""


class _Kept(Struct, frozen=True):
    """Stored identity of a job's simulated nodes. `network`: the third number of their IP addresses."""

    kind: str
    names: tuple[str, ...]
    network: int = 0
    switch: int = 0


class Hosts:
    """Simulated nodes as processes with a loopback address each, without network partitions."""

    kind = "processes"

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder.absolute()
        self.names = tuple(names)
        self._mine: list[subprocess.Popen[bytes]] = []

    def open(self) -> str:
        """Creates what the simulated nodes share. Returns the address of this machine for them. Raises EngineRefused."""
        self._keep(_Kept(self.kind, self.names))
        return "127.0.0.1"

    def address(self, node: str) -> str:
        """Returns the IP address at which other nodes reach this one."""
        return f"127.0.0.{self.names.index(node) + 2}"

    def inside(self, node: str) -> list[str]:
        """Returns the words to put before a command so that it runs on the node. Raises ProcessLookupError if the node is
        down.
        """
        if self.holder(node) is None:
            raise ProcessLookupError(f"{node} is down")
        return []

    def mark(self, node: str) -> str:
        return f"{node}@{self.folder}"

    def marks(self, node: str) -> dict[str, str]:
        """Returns environment variables by which each process of the node can be found."""
        return {MARK: self.mark(node)}

    def place(self, node: str) -> Path:
        """Returns the folder of the node's files on this machine."""
        return self.folder / "nodes" / node

    def holder(self, node: str) -> int | None:
        """Returns the pid of the node's holder process; None if the node is down."""
        pid = read_pid(self.place(node) / "holder")
        return pid if pid is not None and _words(HOLDER, node, str(self.folder)) in _command(pid) else None

    def boot(self, nodes: Iterable[str]) -> None:
        """Starts those of these nodes that are down. Raises EngineRefused."""
        begun = {node: self._begin(node) for node in nodes if self.holder(node) is None}
        for node, process in begun.items():
            _await_word(process, node)
        for node, process in begun.items():
            self._plug(node, process.pid)

    def crash(self, node: str) -> None:
        """Simulates a power failure: all processes of the node end without notice."""
        pid = self.holder(node)
        if pid is not None:
            _kill(pid)
        sweep(self.mark(node))

    def cut(self, node: str) -> None:
        """Interrupts the node's network link without notice. Raises EngineRefused."""
        raise EngineRefused(f"{node} shares this machine's network, and cannot be disconnected from it")

    def join(self, node: str) -> None:
        """Restores the node's network link. Raises EngineRefused."""
        raise EngineRefused(f"{node} shares this machine's network, and cannot be disconnected from it")

    def clear(self) -> None:
        """Removes all processes, networks and files of the nodes, and waits until they are gone."""
        clear(self.folder)
        for process in self._mine:
            process.wait()
        self.collect()

    def collect(self) -> None:
        """Reaps holder processes that have ended."""
        _STARTED[:] = [process for process in _STARTED if process.poll() is None]

    def _begin(self, node: str) -> subprocess.Popen[bytes]:
        self.place(node).mkdir(parents=True, exist_ok=True)
        return self._start(_holding(HOLDER, node, str(self.folder)), self.marks(node))

    def _plug(self, node: str, pid: int) -> None:
        write_pid(self.place(node) / "holder", pid)

    def _start(self, words: Sequence[str], marks: dict[str, str]) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": os.environ.get("PATH", os.defpath), **marks},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise EngineRefused(f"a simulated node cannot be started: {error}") from error
        self._mine.append(process)
        _STARTED.append(process)
        return process

    def _keep(self, kept: _Kept) -> None:
        path = self.folder / "nodes" / KEPT
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(kept))
        part.replace(path)


class NamespaceHosts(Hosts):
    """Simulated nodes with their own network, host name, processes and mounts. Only for root."""

    kind = "netns"

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        super().__init__(folder, names)
        self._network = self._switch = 0

    def open(self) -> str:
        refuse_namespaces()
        kept = _kept(self.folder)
        if kept and kept.network and self._is_switch(kept.switch):
            self._network, self._switch = kept.network, kept.switch
            return self._at(OF_THIS_MACHINE)
        switch = self._start(["unshare", "--net", "--", *_holding(SWITCH, str(self.folder))], {})
        _await_word(switch, "the bridge of the nodes")
        self._switch = switch.pid
        self._network = self._cable()
        self._keep(_Kept(self.kind, self.names, self._network, self._switch))
        self._write_hosts()
        return self._at(OF_THIS_MACHINE)

    def address(self, node: str) -> str:
        return self._at(self.names.index(node) + 1)

    def inside(self, node: str) -> list[str]:
        pid = self.holder(node)
        if pid is None:
            raise ProcessLookupError(f"{node} is down")
        return ["nsenter", "--target", str(pid), "--net", "--uts", "--pid", "--mount", "--"]

    def cut(self, node: str) -> None:
        self._in_switch(f"link set {self._port(node)} down\n")

    def join(self, node: str) -> None:
        self._in_switch(f"link set {self._port(node)} up\n")

    def _begin(self, node: str) -> subprocess.Popen[bytes]:
        self.place(node).mkdir(parents=True, exist_ok=True)
        groups = self.folder / "nodes" / "cgroup"
        groups.mkdir(exist_ok=True)
        around = [
            "unshare",
            "--net",
            "--uts",
            "--pid",
            "--mount",
            "--mount-proc",
            "--fork",
            "--kill-child=SIGKILL",
        ]
        files = (self._hosts_file, self._hosts_file.with_name("resolv.conf"), groups)
        given = [node, str(self.folder), *map(str, files), sys.executable, _HOLD]
        return self._start([*around, "--", "sh", "-c", _SET_UP, HOLDER, *given], self.marks(node))

    def _plug(self, node: str, pid: int) -> None:
        """Connects a new node to the bridge. `pid`: of unshare; the node's first process is its child."""
        holder = next(iter(children(pid)), None)
        if holder is None:
            raise EngineRefused(f"{node} failed while it was being started")
        port = self._port(node)
        with suppress(EngineRefused):
            self._in_switch(f"link delete {port}\n")  # left from before the node went down
        _ip(f"link add {port} netns {self._switch} type veth peer name eth0 netns {holder}\n")
        self._in_switch(f"link set {port} master br0 up\n")
        inside = f"addr add {self.address(node)}/24 dev eth0\nlink set eth0 up\n"
        _ip(
            inside + f"route add default via {self._at(OF_THIS_MACHINE)}\n",
            ("nsenter", "-t", str(holder), "-n"),
        )
        write_pid(self.place(node) / "holder", holder)

    def _cable(self) -> int:
        """Connects this machine to the bridge, in a free network. Returns the network's number."""
        self._in_switch("link set lo up\nlink add br0 type bridge\nlink set br0 up\n")
        used = _tool(("ip", "-o", "addr", "show")) + _tool(("ip", "route", "show", "table", "all"))
        for network in NETWORKS:
            if f"10.213.{network}." in used:
                continue
            try:  # of two jobs that start at once and try the same name, one fails here
                _ip(f"link add hf-{network} type veth peer name here netns {self._switch}\n")
            except EngineRefused as error:
                if "exists" in str(error):
                    continue
                raise
            self._in_switch("link set here master br0 up\n")
            _ip(
                f"addr add 10.213.{network}.{OF_THIS_MACHINE}/24 dev hf-{network}\nlink set hf-{network} up\n"
            )
            return network
        raise EngineRefused("no free network 10.213.N.0/24 was found for the nodes of --hosts netns")

    def _write_hosts(self) -> None:
        """Writes a hosts file, and a resolver configuration that fails quickly for unknown names.

        An unreachable name server would delay each lookup; torch's store looks up its peers by addresses of
        the second form.
        """
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for name in (*self.names, None):
            address = self.address(name) if name else self._at(OF_THIS_MACHINE)
            lines += [f"{form}{address} {name or 'controller'}" for form in ("", "::ffff:")]
        self._hosts_file.write_text("\n".join([*lines, ""]))
        self._hosts_file.with_name("resolv.conf").write_text(
            "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
        )

    @property
    def _hosts_file(self) -> Path:
        return self.folder / "nodes" / "hosts"

    def _at(self, number: int) -> str:
        return f"10.213.{self._network}.{number}"

    def _port(self, node: str) -> str:
        return f"port-{self.names.index(node)}"

    def _in_switch(self, batch: str) -> None:
        _ip(batch, ("nsenter", "-t", str(self._switch), "-n"))

    def _is_switch(self, pid: int) -> bool:
        return _words(SWITCH, str(self.folder)) in _command(pid)


def hosts(kind: str, folder: Path, names: Sequence[str]) -> Hosts:
    """Returns the simulated nodes of a kind ("processes", "netns"); starts nothing."""
    return NamespaceHosts(folder, names) if kind == "netns" else Hosts(folder, names)


def found(folder: Path) -> Hosts:
    """Returns the nodes of a running job, for another process. Raises EngineRefused if it has none."""
    kept = _kept(folder)
    if kept is None:
        raise EngineRefused(f"{folder} has no nodes on this machine")
    one = hosts(kept.kind, folder, kept.names)
    if kept.kind == "netns":
        one.open()
    return one


def refuse_namespaces() -> None:
    """Raises EngineRefused, with the reason, if namespaces cannot be created here."""
    if os.geteuid() != 0:
        raise EngineRefused(
            "--hosts netns needs root, because it creates network namespaces; --hosts processes needs "
            "no special permissions"
        )
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise EngineRefused(
            f"--hosts netns needs {', '.join(missing)} on PATH (from util-linux, iproute2, hostname)"
        )


def folders() -> set[Path]:
    """Returns the folders of this user's jobs that have nodes on this machine."""
    return {Path(words[-1]) for _, words in _holders()}


def clear(folder: Path) -> None:
    """Ends all nodes of this folder, whichever process started them, and waits until they are gone."""
    text = str(folder.absolute())
    mine = [pid for pid, words in _holders() if words[-1] == text]
    for pid in mine:
        _kill(pid)
    mine += sweep(f"@{text}")
    until_s = time.monotonic() + GONE_S
    while any(_command(pid) for pid in mine) and time.monotonic() < until_s:
        time.sleep(0.01)
    kept = _kept(folder)
    if kept and kept.network:
        with suppress(EngineRefused):  # it goes with the other end, but later
            _ip(f"link delete hf-{kept.network}\n")
    for name in (KEPT, "cgroup"):
        with suppress(OSError):
            path = folder / "nodes" / name
            path.rmdir() if path.is_dir() else path.unlink()


def sweep(mark: str) -> set[int]:
    """Kills every process with this mark in its environment, until no new one appears. Returns their pids."""
    wanted, seen = f"{MARK}=".encode(), set[int]()
    for _ in range(SWEEP_ROUNDS_MAX):
        here = {pid for pid in _pids() if any(one.endswith(mark.encode()) for one in _environ(pid, wanted))}
        for pid in here:
            _kill(pid)
        if here <= seen:
            break
        seen |= here
    return seen


def children(pid: int) -> list[int]:
    """Returns the child processes of a process's first thread."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_marked(pid: int, mark: str) -> bool:
    """Returns True if the process runs and has this mark."""
    return mark.encode() in _environ(pid, f"{MARK}=".encode())


def read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def write_pid(path: Path, pid: int) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(str(pid))
    part.replace(path)


# Processes and tools ----------------------------------------------------------------------------------------


def _holding(*words: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _HOLD, *words]


def _holders() -> Iterator[tuple[int, list[str]]]:
    """Yields holder and bridge processes of this user, each with its arguments after the program text."""
    for pid in _pids():
        words = _command(pid).rstrip(b"\0").split(b"\0")
        if words[1:5] != [b"-I", b"-S", b"-c", _HOLD.encode()] or len(words) < 7:
            continue
        if words[5].decode() in (HOLDER, SWITCH) and _is_mine(pid):
            yield pid, [os.fsdecode(word) for word in words[5:]]


def _words(*words: str) -> bytes:
    return b"\0".join(map(os.fsencode, words)) + b"\0"


def _await_word(process: subprocess.Popen[bytes], what: str) -> None:
    """Waits until a holder reports that it is up. Raises EngineRefused with its error output."""
    assert process.stdout is not None and process.stderr is not None
    timer = time.monotonic() + BOOT_S
    os.set_blocking(process.stdout.fileno(), False)
    said: bytes | None = None
    while said is None and time.monotonic() < timer:
        said = process.stdout.read()
        if said is None:
            time.sleep(0.005)
    if said == b"up":
        process.stdout.close()
        process.stderr.close()
        return
    process.kill()
    why = process.stderr.read().decode(errors="replace").strip() or f"no response within {BOOT_S:.0f} s"
    process.wait()
    raise EngineRefused(f"{what} cannot be started on this machine: {why}")


def _ip(batch: str, before: Sequence[str] = ()) -> None:
    """Runs lines of commands with `ip -batch`. Raises EngineRefused."""
    _tool((*before, "ip", "-batch", "-"), batch)


def _tool(words: Sequence[str], given: str = "") -> str:
    try:
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=TOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineRefused(f"{' '.join(words)} failed: {error}") from error
    if done.returncode:
        raise EngineRefused(f"{' '.join(words)} failed at {given.strip()!r}: {done.stderr.strip()}")
    return done.stdout


def _kept(folder: Path) -> _Kept | None:
    try:
        return msgspec.json.decode((folder / "nodes" / KEPT).read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return None


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _command(pid: int) -> bytes:
    """Returns the command line of a process, with a NUL after each word; empty if it is ending or gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _environ(pid: int, prefix: bytes) -> list[bytes]:
    """Returns the values of environment entries that begin with this prefix."""
    try:
        found = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    return [one.removeprefix(prefix) for one in found if one.startswith(prefix)]


def _is_mine(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False
