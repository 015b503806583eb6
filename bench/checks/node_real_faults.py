"""Faults for the check bench that are real: file systems, mounts, limits, groups, namespaces and processes of this machine.

Each takes away what it made. What this machine cannot give (no root, no loop device) is left out, with the reason.
"""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.checks.node_trees import scene_of, sound_node
from bench.hang.places import Disk, NotHere, tried
from holdfast.checks.child import look
from holdfast.checks.registry import check_named
from holdfast.core.checks.peers import compared
from holdfast.model.checks import ENVIRONMENT_FAULT, FAIL, WARN, NodeChecks, Outcome, Scene

__all__ = ["REAL", "NotHere", "Real"]
NOBODY = 65534
MNT_DETACH = 2
CHILD = (sys.executable, "-P", "-m", "holdfast.checks.child")
UNTIL_S = 15.0
CHILD_S = 60.0
_LIBC = ctypes.CDLL(None, use_errno=True)


class Real(NamedTuple):
    """`check`: which is to find it, with which status and fault. `run`: the outcomes of the checks that were asked."""

    name: str
    check: str
    status: str
    run: Callable[[Path], list[Outcome]]
    fault: str = ""


def _root() -> None:
    if os.geteuid() != 0:
        raise NotHere("needs root")


def here(scene: Scene, *names: str) -> list[Outcome]:
    return [look(check_named(name), scene) for name in names]


def plain(folder: Path, **changes: object) -> Scene:
    """This very machine, and a run on it."""
    tree = sound_node(folder / "root")
    return scene_of(tree, folder, **{"root": "/", "now_s": time.time(), "ranks": None, **changes})


def child(
    scene: Scene, *names: str, around: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> list[Outcome]:
    """Asks in a process of the checks, begun by `around`: under another limit, in another namespace or group."""
    text = msgspec.json.encode(scene) + b"\n" + "".join(f"{name}\n" for name in names).encode()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*around, *CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            env=env,
        )
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        impatience = threading.Timer(CHILD_S, process.kill)
        impatience.start()
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(text)
                process.stdin.flush()
            lines = [line for _ in ("ready", *names) if (line := process.stdout.readline())][1:]
        finally:
            impatience.cancel()
            process.kill()
            process.communicate()  # not before the last answer: it ends when nobody is left to ask
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if len(lines) != len(names):
        raise NotHere(said[-200:] or "the process gave no answer")
    return [msgspec.json.decode(line, type=Outcome) for line in lines]


@contextmanager
def tmpfs(path: Path, options: str) -> Iterator[Path]:
    """raises: NotHere"""
    _root()
    path.mkdir(parents=True)
    tried(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)])
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


@contextmanager
def dead_mount(path: Path) -> Iterator[int]:
    """A FUSE file system whose program never answers; gives the descriptor that keeps it so. raises: NotHere"""
    _root()
    path.mkdir(parents=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NotHere(f"/dev/fuse: {error.strerror}") from error
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    try:
        if _LIBC.mount(b"nobody", bytes(path), b"fuse", 0, options):
            raise NotHere(f"mount of FUSE: {os.strerror(ctypes.get_errno())}")
        yield server
    finally:
        _LIBC.umount2(bytes(path), MNT_DETACH)
        with suppress(OSError):
            os.close(server)


def full(folder: Path, *names: str) -> list[Outcome]:
    with tmpfs(folder / "small", "size=8m") as path:
        with suppress(OSError), (path / "filler").open("wb", buffering=0) as file:
            while file.write(b"x" * 65536):
                pass
        return here(plain(folder, folders={"checkpoint": str(path)}), *names)


def nearly_full(folder: Path) -> list[Outcome]:
    with tmpfs(folder / "small", "size=100m") as path:
        with (path / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 98 << 20)
        return here(plain(folder, folders={"work": str(path)}), "io-space", "io-write")


def no_inodes(folder: Path, *names: str) -> list[Outcome]:
    with tmpfs(folder / "small", "size=8m,nr_inodes=40") as path:
        with suppress(OSError):
            for number in range(100):
                (path / str(number)).touch()
        return here(plain(folder, folders={"checkpoint": str(path)}), *names)


def read_only(folder: Path) -> list[Outcome]:
    with tmpfs(folder / "ro", "size=8m,ro") as path:
        return here(plain(folder, folders={"checkpoint": str(path)}), "io-write", "io-space")


def not_allowed(folder: Path) -> list[Outcome]:
    _root()
    path = folder / "roots"
    path.mkdir(mode=0o700)
    os.chmod(folder, 0o755)
    scene = plain(folder, folders={"checkpoint": str(path)})
    return child(scene, "io-write", around=("setpriv", f"--reuid={NOBODY}", "--clear-groups"))


def frozen(folder: Path) -> list[Outcome]:
    _root()
    with Disk(folder) as disk:
        tried(["fsfreeze", "--freeze", str(disk.path)])
        try:
            return here(plain(folder, folders={"checkpoint": str(disk.path)}), "io-write", "io-space")
        finally:
            disk.heal()


def dead_under_folder(folder: Path) -> list[Outcome]:
    with dead_mount(folder / "dead"), tmpfs(folder / "alive", "size=1m") as alive:
        folders = {"checkpoint": str(folder / "dead" / "run"), "work": str(alive)}
        return here(plain(folder, folders=folders), "io-mounts", "io-space")


def dead_in_a_quick_look(folder: Path) -> list[Outcome]:
    with dead_mount(folder / "dead"):
        scene = plain(folder, folders={"work": str(folder / "dead")}, quick=True)
        return here(scene, "io-mounts", "io-space", "io-inodes")


def dead_elsewhere(folder: Path) -> list[Outcome]:
    with dead_mount(folder / "dead"):
        return here(plain(folder, folders={}, quick=True), "io-mounts")


def disconnected(folder: Path) -> list[Outcome]:
    with dead_mount(folder / "dead") as server:
        os.close(server)  # as when the program that serves it has died
        return here(plain(folder, folders={"work": str(folder / "dead")}, quick=True), "io-mounts")


def shm(folder: Path, size: str, fill: str = "", **changes: object) -> list[Outcome]:
    """A /dev/shm of its own, in a mount namespace of its own."""
    _root()
    script = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && {fill or "true"} && exec "$@"'
    around = ("unshare", "--mount", "sh", "-c", script, "sh")
    name = "host-leftovers" if "torch_" in fill else "io-shm"
    return child(plain(folder, **changes), name, around=around)


def limited(folder: Path, *around: str, **changes: object) -> list[Outcome]:
    """The made-up node, which says that we have no rights, asked under real limits."""
    tree = sound_node(folder / "root")
    if "--memlock=65536" not in around:
        tree.drop("sys/class/infiniband")  # for which this machine's own limit may be too small
    tree.put("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-63")
    scene = scene_of(tree, folder, folders={}, **changes)
    return child(scene, "io-limits", around=around)


@contextmanager
def group(controller: str, **values: object) -> Iterator[tuple[str, ...]]:
    """A control group of its own; gives what puts a process into it. raises: NotHere"""
    _root()
    root = Path("/sys/fs/cgroup")
    place = root / controller if (root / controller).is_dir() else root
    mine = place / f"holdfast-checks-{os.getpid()}"
    try:
        mine.mkdir()
    except OSError as error:
        raise NotHere(f"a control group: {error.strerror}") from error
    try:
        for name, value in values.items():
            files = [mine / option for option in name.split("__")]
            file = next((one.with_name(one.name.replace("_DOT_", ".")) for one in files), None)
            assert file is not None, "a name has at least one part"
            if not file.exists():
                raise NotHere(f"{controller} has no {file.name} here")
            file.write_text(str(value))
        yield ("sh", "-c", f'echo $$ > {shlex.quote(str(mine / "cgroup.procs"))} && exec "$@"', "sh")
    finally:
        until_s = time.monotonic() + UNTIL_S
        while time.monotonic() < until_s:
            with suppress(OSError):
                mine.rmdir()
                break
            time.sleep(0.02)


def small_memory(folder: Path) -> list[Outcome]:
    v1 = Path("/sys/fs/cgroup/memory").is_dir()
    values = {"memory_DOT_limit_in_bytes" if v1 else "memory_DOT_max": 400 << 20}
    with group("memory", **values) as around:
        return child(plain(folder, ranks=4), "host-memory", around=around)


def few_processors(folder: Path) -> list[Outcome]:
    v1 = Path("/sys/fs/cgroup/cpu").is_dir()
    values = {"cpu_DOT_cfs_quota_us": 50_000} if v1 else {"cpu_DOT_max": "50000 100000"}
    with group("cpu", **values) as around:
        return child(plain(folder, ranks=2), "host-cpu", around=around)


def few_pids(folder: Path) -> list[Outcome]:
    with group("pids", pids_DOT_max=60) as around:
        return child(plain(folder, ranks=8), "io-limits", around=around)


def pinned(folder: Path) -> list[Outcome]:
    scene = plain(folder, ranks=4)
    return child(scene, "host-cpu", around=("taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))))


@contextmanager
def running(script: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python of its own, from its first word on stdout until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, **env},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None, "it is a pipe"
        process.stdout.readline()
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()


def zombies(folder: Path) -> list[Outcome]:
    script = """
import os, time
for _ in range(220):
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print("made", flush=True); time.sleep(60)
"""
    with running(script):
        return here(plain(folder, quick=True), "host-processes")


def blocked(folder: Path) -> list[Outcome]:
    """A process that asks a dead mount: state D."""
    path = folder / "dead"
    with dead_mount(path), running(f"import os; print('asks', flush=True); os.stat({str(path)!r} + '/file')"):
        return here(plain(folder, folders={}), "host-processes")


def left_over(folder: Path) -> list[Outcome]:
    """A process of a job whose launcher has ended; it is adopted, and tells its number."""
    script = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\nimport time; time.sleep(60)"
    env = {**os.environ, "HOLDFAST_JOB": "yesterday"}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None, "it is a pipe"
    pid = int(process.stdout.readline())
    process.wait()
    try:
        adopter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        if adopter != "1":
            raise NotHere(f"process {adopter} adopts orphans here, not the first one")
        return here(plain(folder), "host-leftovers")
    finally:
        os.kill(pid, signal.SIGKILL)
        process.stdout.close()


def held_port(folder: Path) -> list[Outcome]:
    script = "import socket, time\ns = socket.create_server(('', 0))\nprint(s.getsockname()[1], flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None, "it is a pipe"
        port = process.stdout.readline().decode().strip()
        return here(plain(folder, env={"MASTER_PORT": port}), "net-port")
    finally:
        process.kill()
        process.communicate()


class TwoNetworks:
    """Two network namespaces with a link between them. `names`, `devices`: of both."""

    def __enter__(self) -> "TwoNetworks":
        """raises: NotHere"""
        _root()
        self.names = tuple(f"checks-{os.getpid()}{end}" for end in "ab")
        self.devices = tuple(f"ck{os.getpid()}{end}" for end in "ab")
        (one, other), (mine, theirs) = self.names, self.devices
        for name in self.names:
            tried(["ip", "netns", "add", name])
        tried(
            ["ip", "link", "add", mine, "netns", one, "type", "veth", "peer", "name", theirs, "netns", other]
        )
        for number, (name, device) in enumerate(zip(self.names, self.devices, strict=True), 1):
            tried(["ip", "-n", name, "addr", "add", f"10.78.0.{number}/24", "dev", device])
            tried(["ip", "-n", name, "link", "set", device, "up"])
        return self

    def inside(self, number: int) -> tuple[str, ...]:
        """`ip netns exec` mounts /sys anew, so that it shows the namespace's own interfaces."""
        return ("ip", "netns", "exec", self.names[number])

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def other_mtu(folder: Path) -> list[Outcome]:
    with TwoNetworks() as net:
        tried(["ip", "-n", net.names[1], "link", "set", net.devices[1], "mtu", "1400"])
        nodes = [
            NodeChecks(
                node=name, outcomes=tuple(child(plain(folder), "net-interfaces", around=net.inside(number)))
            )
            for number, name in enumerate(net.names)
        ]
        return [outcome for outcome in compared(nodes)[0].outcomes if outcome.status == WARN]


def chosen_is_down(folder: Path) -> list[Outcome]:
    with TwoNetworks() as net:
        tried(["ip", "-n", net.names[1], "link", "set", net.devices[1], "down"])
        scene = plain(folder, env={"GLOO_SOCKET_IFNAME": net.devices[0]})
        return child(scene, "net-interfaces", around=net.inside(0))


def clock_is_off(folder: Path) -> list[Outcome]:
    """A chronyc that tells of an offset of 0.35 s."""
    tools = folder / "bin"
    tools.mkdir()
    line = "A29FC87B,10.0.0.9,3,1700000000.1,0.350000000,0.35,0.35,-12.3,0.01,0.2,0.01,0.001,64.4,Normal"
    (tools / "chronyc").write_text(f"#!/bin/sh\necho '{line}'\n")
    (tools / "chronyc").chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    return child(plain(folder), "host-clock", env=env)


def service_failed(folder: Path) -> list[Outcome]:
    """A systemctl that lists a unit that failed."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text("#!/bin/sh\necho 'openibd.service loaded failed failed openibd'\n")
    (tools / "systemctl").chmod(0o755)
    tree = sound_node(folder / "root")
    tree.put("run/systemd/system/keep", "")
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    return child(scene_of(tree, folder), "host-failed-services", env=env)


def rises_now(folder: Path) -> list[Outcome]:
    """A counter of a port that rises while it is looked at."""
    tree = sound_node(folder / "root")
    path = str(tree.root / "sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error")
    script = f"""
import itertools, os, time
for value in itertools.count():
    with open({path!r} + ".new", "w") as file: file.write(str(9 * value))
    os.replace({path!r} + ".new", {path!r})
    if value == 0: print("counts", flush=True)
    time.sleep(0.05)
"""
    with running(script):
        return here(scene_of(tree, folder, context="manual"), "rdma-errors")


SEGMENTS = "head -c 40000000 /dev/zero > /dev/shm/torch_99999999_12_0"

REAL = (
    Real("full file system: room", "io-space", FAIL, lambda folder: full(folder, "io-space")),
    Real(
        "full file system: writing",
        "io-write",
        FAIL,
        lambda folder: full(folder, "io-write"),
        ENVIRONMENT_FAULT,
    ),
    Real("nearly full file system", "io-space", WARN, nearly_full),
    Real("no inodes left", "io-inodes", FAIL, lambda folder: no_inodes(folder, "io-inodes", "io-space")),
    Real(
        "no inodes left: writing",
        "io-write",
        FAIL,
        lambda folder: no_inodes(folder, "io-write"),
        ENVIRONMENT_FAULT,
    ),
    Real("read-only checkpoint folder", "io-write", FAIL, read_only, ENVIRONMENT_FAULT),
    Real("checkpoint folder of somebody else", "io-write", FAIL, not_allowed, ENVIRONMENT_FAULT),
    Real("frozen file system", "io-write", FAIL, frozen),
    Real("dead mount under the checkpoint folder", "io-mounts", FAIL, dead_under_folder),
    Real("dead mount, looked at quickly", "io-mounts", WARN, dead_in_a_quick_look),
    Real("dead mount elsewhere", "io-mounts", WARN, dead_elsewhere),
    Real("mount whose program died", "io-mounts", FAIL, disconnected),
    Real("small /dev/shm", "io-shm", WARN, lambda folder: shm(folder, "64m", ranks=8, loader_workers=2)),
    Real(
        "full /dev/shm",
        "io-shm",
        WARN,
        lambda folder: shm(
            folder, "64m", "head -c 60000000 /dev/zero > /dev/shm/x", ranks=1, loader_workers=0
        ),
    ),
    Real(
        "shared memory of processes that are gone",
        "host-leftovers",
        WARN,
        lambda folder: shm(folder, "64m", SEGMENTS, now_s=time.time() + 1000),
    ),
    Real(
        "few open files",
        "io-limits",
        WARN,
        lambda folder: limited(folder, "prlimit", "--nofile=256"),
    ),
    Real(
        "little locked memory",
        "io-limits",
        WARN,
        lambda folder: limited(folder, "prlimit", "--memlock=65536"),
    ),
    Real(
        "few processes",
        "io-limits",
        WARN,
        lambda folder: limited(folder, "prlimit", "--nproc=200"),
    ),
    Real("small memory limit of a group", "host-memory", WARN, small_memory),
    Real("small processor quota of a group", "host-cpu", WARN, few_processors),
    Real("few processes of a group", "io-limits", WARN, few_pids),
    Real("ranks pinned to one processor", "host-cpu", WARN, pinned),
    Real("zombies", "host-processes", WARN, zombies),
    Real("process in state D", "host-processes", WARN, blocked),
    Real("process of a job that is over", "host-leftovers", WARN, left_over),
    Real("port of MASTER_PORT is held", "net-port", FAIL, held_port),
    Real("another MTU than the other node's", "net-interfaces", WARN, other_mtu),
    Real("the chosen interface is down", "net-interfaces", FAIL, chosen_is_down),
    Real("clock is off", "host-clock", WARN, clock_is_off),
    Real("RDMA service failed", "host-failed-services", WARN, service_failed),
    Real("symbol errors rise now", "rdma-errors", WARN, rises_now),
)
