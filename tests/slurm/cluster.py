"""A real Slurm cluster on this machine: munged, slurmctld and some slurmd, each node in namespaces of its own.

Nothing of it has a name outside its folder: network, PID, UTS and mount namespaces are anonymous and end with
the first process in them, which ends when the test process does, however that ends. Two clusters never meet.
Where namespaces are forbidden, several slurmd run on this one host: then no node can crash or lose its link.
"""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from slurm.machine import (
    HERE,
    PATH,
    UP_S,
    can_have_namespaces,
    free_ports,
    lives,
    opened_to_all,
    wait_until,
)

PREFIX = "holdfast-slurm-"
NET = "10.77.0"
CTL = "ctl"
COMMAND_S = 100.0
HEALED_S = 300.0  # a node that slurmctld holds for lost answers after its SlurmdTimeout and a retry or two
YOUNG_S = 60.0
LOG_LINES = 200
# Private host name, host list and sysfs; the cgroups stay those of the machine, which slurmd looks for.
ENTRANCE = """
set -e
hostname "$1"
mount --bind "$2/etc/hosts" /etc/hosts
mkdir -p "$2/cg/$1"; mount --rbind /sys/fs/cgroup "$2/cg/$1"
mount -t sysfs sysfs /sys; mount --rbind "$2/cg/$1" /sys/fs/cgroup
@OPENED@
touch "$2/pid/$1.ready"
exec tini -s -- cat
"""


class Cluster:
    """Nodes n1 … nN, and `ctl`, where slurmctld runs and from where jobs are submitted.

    `timeout_s`: SlurmdTimeout. `more`: further lines of slurm.conf.
    """

    def __init__(self, nodes: int = 6, *, gpus: int = 8, timeout_s: int = 30, more: str = "") -> None:
        _sweep()
        self.count, self.gpus = nodes, gpus
        self.namespaces = can_have_namespaces()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        self.folder.chmod(0o711)
        self._lock = _locked(self.folder)
        self.shared = self.folder / "shared"
        self._lifeline_read, self._lifeline = os.pipe()
        self._inits: dict[str, int] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        self.env = {"PATH": PATH, "SLURM_CONF": str(self.folder / "etc" / "slurm.conf"), "LC_ALL": "C.UTF-8"}
        self.env["SINFO_PARTITION"] = "train"  # each node is in two
        self._ports = free_ports(nodes + 1)
        self._write(timeout_s, more)

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.count + 1)]

    # Up and down ------------------------------------------------------------------------------------------

    def start(self) -> "Cluster":
        if self.namespaces:
            self._hosts([CTL, *self.names])
        self._daemon(CTL, "munged", *self._munge_words())
        wait_until("munged", (self.folder / "munge" / "m.sock").exists)
        self._daemon(CTL, "slurmctld", "-i")
        for number in range(1, self.count + 1):
            self.start_slurmd(number)
        self.wait_idle()
        return self

    def stop(self) -> None:
        os.close(self._lifeline)  # the first process of each node reads it
        for pid in self._inits.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._inits.values():
            wait_until(f"the end of process {pid}", lambda pid=pid: not lives(pid))
        if self._keeper is not None:
            self._keeper.wait(UP_S)
        os.close(self._lifeline_read)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def wait_idle(self) -> None:
        """Until every node takes jobs."""
        wait_until(
            lambda: f"idle nodes:\n{self.ctl('sinfo', '-N', check=False)}",
            lambda: self.ctl("sinfo", "-h", "-N", "-o", "%T", check=False).split() == ["idle"] * self.count,
        )

    def restore(self) -> None:
        """After a test: no job, every node up and idle, whatever was done to them."""
        self._cancel_all()
        if self._inits and not self.slurmctld_lives():
            self.start_slurmctld()
        self.ctl("scontrol", "update", "PartitionName=train", "GraceTime=0", check=False)
        for number in range(1, self.count + 1):
            if self.namespaces and not lives(self._inits.get(f"n{number}", 0)):
                self.boot(number)
            elif self.namespaces:
                self.join(number)
            if not self._daemon_pid("slurmd", f"-N n{number}"):
                self.start_slurmd(number)
            self.stop_slurmd(number, goes_on=True)
        wait_until(
            lambda: (
                f"healthy nodes:\n{self.ctl('squeue', '-l', check=False)}\n{self.ctl('sinfo', '-N', '-l', check=False)}"
            ),
            self._healed,
            wait_s=HEALED_S,
        )

    def _cancel_all(self) -> None:
        with suppress(subprocess.SubprocessError):
            self.ctl("scancel", "--signal=KILL", "--full", "--state=RUNNING", "--me", check=False)
            for user in ("root", "daemon"):
                self.ctl("scancel", "--user", user, check=False)

    def _healed(self) -> bool:
        if self.ctl("squeue", "-h", check=False):
            self._cancel_all()  # again: a job may have been submitted or requeued since
            return False
        listing = self.ctl("sinfo", "-h", "-N", "-o", "%N %T", check=False)
        states = dict(line.split() for line in listing.splitlines())
        sick = [name for name, state in states.items() if state != "idle"]
        for name in sick:
            self.ctl("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        return not sick and len(states) == self.count

    # What is done to it -----------------------------------------------------------------------------------

    def crash(self, number: int) -> None:
        """Every process of the node is gone at once, and its network with them."""
        pid = self._inits.pop(f"n{number}")
        os.kill(pid, signal.SIGKILL)
        wait_until(f"the end of n{number}", lambda: not lives(pid))

    def lose_power(self, number: int) -> None:
        """As `crash`, but nobody hears a connection being closed."""
        self.cut(number)
        self.crash(number)

    def boot(self, number: int, *, slurmd: bool = True) -> None:
        self._hosts([f"n{number}"])
        if slurmd:
            self.start_slurmd(number)

    def cut(self, number: int) -> None:
        """The switch's port goes down."""
        self._enter(CTL, ["ip", "link", "set", f"v{number}", "down"], net_only=True)

    def join(self, number: int) -> None:
        self._enter(CTL, ["ip", "link", "set", f"v{number}", "up"], net_only=True)

    def slurmd_lives(self, number: int) -> bool:
        """And does what it is sent: one that stands still does not."""
        pid = self._daemon_pid("slurmd", f"-N n{number}")
        try:
            return (
                bool(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX"
            )
        except (FileNotFoundError, ProcessLookupError):  # it ended in between
            return False

    def kill_slurmd(self, number: int) -> None:
        self._signal("slurmd", f"-N n{number}", signal.SIGKILL)
        wait_until("the end of slurmd", lambda: not self._daemon_pid("slurmd", f"-N n{number}"))

    def stop_slurmd(self, number: int, *, goes_on: bool = False) -> None:
        """It takes what it is sent, and does nothing of it until it `goes_on`."""
        self._signal("slurmd", f"-N n{number}", signal.SIGCONT if goes_on else signal.SIGSTOP)

    def start_slurmd(self, number: int) -> None:
        (self.folder / "spool" / f"n{number}").mkdir(parents=True, exist_ok=True)
        self._daemon(f"n{number}", "slurmd", "-N", f"n{number}")

    def has_saved(self, mark: object, steps: int) -> bool:
        """Whether slurmctld would still know the job whose files are in the folder `mark`, and so many of its agents.

        It writes its jobs down every few seconds; what it has not, it has never heard of when it is started again.
        """
        with suppress(OSError):
            _, found, after = (self.folder / "state" / "job_state").read_bytes().partition(str(mark).encode())
            return bool(found) and after.count(b"holdfast-agent") >= steps
        return False

    def slurmctld_lives(self) -> bool:
        return bool(self._daemon_pid("slurmctld", ""))

    def kill_slurmctld(self) -> None:
        self._signal("slurmctld", "", signal.SIGKILL)
        wait_until("the end of slurmctld", lambda: not self.slurmctld_lives())

    def start_slurmctld(self) -> None:
        self._daemon(CTL, "slurmctld")

    def resumed(self, *numbers: int) -> bool:
        """Whether slurmctld responds and counts none of these nodes as down; it is asked to resume them."""
        names = ",".join(f"n{number}" for number in numbers)
        self.ctl("scontrol", "update", f"nodename={names}", "state=resume", check=False)
        states = self.ctl(
            "sinfo", "--noheader", "--Node", "--nodes", names, "--format=%T", check=False
        ).split()
        return bool(states) and not any(state.startswith(("down", "drain")) for state in states)

    # Running something in it ------------------------------------------------------------------------------

    def ctl(self, *words: object, user: str = "", check: bool = True, **env: object) -> str:
        """What the command says on its stdout, without the last newline."""
        return self.on(CTL, *words, user=user, check=check, **env)

    def on(self, node: str | int, *words: object, user: str = "", check: bool = True, **env: object) -> str:
        ran = subprocess.run(
            self.words(node, *words, user=user),
            env=self.env | {key: str(value) for key, value in env.items()},
            cwd=self.shared,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert ran.returncode == 0 or not check, f"{words} on {node}: {ran.stderr}{ran.stdout}"
        return ran.stdout.strip("\n")

    def words(self, node: str | int, *words: object, user: str = "") -> list[str]:
        """The command line, started from outside, that runs `words` there. Its child is the command."""
        name = f"n{node}" if isinstance(node, int) else node
        told = [str(word) for word in words]
        if user:
            told = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *told]
        if not self.namespaces:
            return told
        return [
            "nsenter",
            "-t",
            str(self._inits[name]),
            "-n",
            "-u",
            "-p",
            "-m",
            "--",
            "env",
            f"--chdir={self.shared}",
            *told,
        ]

    def state(self, node: int) -> str:
        """Empty while slurmctld does not answer."""
        return self.ctl("sinfo", "-h", "-N", "-n", f"n{node}", "-o", "%T", check=False)

    def said(self) -> str:
        """The jobs, the nodes and the last lines of slurmctld's log: for the message of a failed test."""
        jobs = self.ctl("squeue", "--long", check=False)
        nodes = self.ctl("sinfo", "-N", "-o", "%N %T %H %E", check=False)
        log = (self.folder / "log" / "ctld.log").read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join(["--- squeue", jobs, "--- sinfo", nodes, "--- slurmctld", *log])

    def processes(self, node: int) -> list[str]:
        """The command lines on a node, but for its first process, slurmd and this question."""
        listing = self.on(node, "ps", "-eo", "pid=,args=")
        lines = [line.split(None, 1) for line in listing.splitlines()]
        ours = ("tini", "cat", "ps -eo", "slurmd ", "slurmd\n", "[")
        return [words for pid, words in lines if not f"{words} ".startswith(ours) and "/slurmd" not in words]

    # Inside -----------------------------------------------------------------------------------------------

    def _daemon(self, node: str, *words: object) -> None:
        if self.namespaces:
            self._enter(node, [str(word) for word in words])
            return
        if self._keeper is None:
            self._keeper = subprocess.Popen(
                [
                    sys.executable,
                    "-S",
                    str(HERE / "keeper.py"),
                    str(self._lifeline_read),
                    str(self.folder / "todo"),
                ],
                pass_fds=[self._lifeline_read],
                env=self.env,
            )
            wait_until("the keeper", (self.folder / "todo").exists)
        with (self.folder / "todo").open("w") as todo:
            todo.write("\0".join(map(str, words)) + "\n")

    def _enter(self, node: str, words: list[str], *, net_only: bool = False) -> None:
        where = ["-n"] if net_only else ["-n", "-u", "-p", "-m"]
        ran = subprocess.run(
            ["nsenter", "-t", str(self._inits[node]), *where, "--", *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        assert ran.returncode == 0, f"{words} on {node}: {ran.stderr}"

    def _hosts(self, names: list[str]) -> None:
        """Namespaces, each held by a first process that ends with the lifeline; and cables from the switch to them."""
        for name in names:
            self._hold(name)
        for name in names:
            wait_until(f"{name}:\n{self._said(name)}", (self.folder / "pid" / f"{name}.ready").exists)
            unshare = int((self.folder / "pid" / f"{name}.unshare").read_text())
            self._inits[name] = int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text())
        if CTL in names:
            self._ip(
                CTL,
                "link set lo up",
                "link add br0 type bridge",
                f"addr add {NET}.250/24 dev br0",
                "link set br0 up",
            )
        for name in names:
            if name == CTL:
                continue
            number = name[1:]
            self._unplug(number)
            self._ip(
                CTL,
                # The same address after every boot, as a real card has: the others remember it for up to a minute.
                f"link add v{number} type veth peer name eth0 address 02:00:00:00:00:{int(number):02x} "
                f"netns {self._inits[name]}",
                f"link set v{number} master br0 up",
            )
            self._ip(name, "link set lo up", f"addr add {NET}.{number}/24 dev eth0", "link set eth0 up")

    def _unplug(self, number: str) -> None:
        """What is left of a cable to a node that is gone: the kernel takes its time with a network nobody is in."""
        words = ["nsenter", "-t", str(self._inits[CTL]), "-n", "ip", "link", "del", f"v{number}"]
        subprocess.run(words, capture_output=True)

    def _hold(self, name: str) -> None:
        for end in ("ready", "unshare"):
            (self.folder / "pid" / f"{name}.{end}").unlink(missing_ok=True)
        inside = ENTRANCE.replace("@OPENED@", opened_to_all(self.folder))
        entrance = ["sh", "-c", inside, "entrance", name, str(self.folder)]
        unshare = [
            "unshare",
            "--net",
            "--uts",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
            *entrance,
        ]
        noted = f'echo $$ > "{self.folder}/pid/{name}.unshare"; exec "$@"'
        with (self.folder / "log" / f"{name}.holder").open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", noted, "hold", *unshare],
                stdin=self._lifeline_read,
                stdout=log,
                stderr=log,
                env=self.env,
                check=True,
            )

    def _said(self, name: str) -> str:
        return (self.folder / "log" / f"{name}.holder").read_text(errors="replace")

    def _ip(self, node: str, *lines: str) -> None:
        words = ["nsenter", "-t", str(self._inits[node]), "-n", "ip", "-batch", "-"]
        ran = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True)
        assert ran.returncode == 0, f"ip on {node}: {ran.stderr}"

    def _daemon_pid(self, name: str, with_words: str) -> int:
        """The host's pid of a daemon of this cluster; 0: it does not run."""
        mark = f"SLURM_CONF={self.env['SLURM_CONF']}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if (
                    Path(words[0].decode()).name == name
                    and with_words.encode() in b" ".join(words)
                    and mark in (process / "environ").read_bytes().split(b"\0")
                ):
                    return int(process.name)
        return 0

    def _signal(self, name: str, with_words: str, number: int) -> None:
        pid = wait_until(f"a {name} {with_words}", lambda: self._daemon_pid(name, with_words))
        os.kill(pid, number)

    def _munge_words(self) -> list[str]:
        munge = self.folder / "munge"
        named = {
            "key-file": "key",
            "socket": "m.sock",
            "pid-file": "m.pid",
            "log-file": "m.log",
            "seed-file": "seed",
        }
        return ["--force", *(f"--{flag}={munge / name}" for flag, name in named.items())]

    def _write(self, timeout_s: int, more: str) -> None:
        for name in ("etc", "state", "log", "pid", "munge", "fake", "cg", "spool", "shared"):
            (self.folder / name).mkdir()
        self.shared.chmod(0o1777)
        for open_folder in ("munge", "etc", "fake"):
            (self.folder / open_folder).chmod(0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        gpus = self._fake_gpus()
        etc = self.folder / "etc"
        (etc / "gres.conf").write_text(gpus)
        (etc / "cgroup.conf").write_text("CgroupAutomount=no\n")
        lines = ["127.0.0.1 localhost", f"{NET}.250 {CTL}"]
        lines += [f"{NET}.{number} n{number}" for number in range(1, self.count + 1)]
        (etc / "hosts").write_text("\n".join(lines) + "\n")
        (etc / "slurm.conf").write_text(self._conf(timeout_s, bool(gpus), more))

    def _fake_gpus(self) -> str:
        """Character devices that stand for GPUs: Slurm hands them out and sets CUDA_VISIBLE_DEVICES."""
        try:
            for number in range(self.gpus):
                os.mknod(self.folder / "fake" / f"gpu{number}", 0o20666, os.makedev(1, 3))
        except PermissionError:
            return ""
        files = f"{self.folder}/fake/gpu[0-{self.gpus - 1}]"
        return f"NodeName=n[1-{self.count}] Name=gpu Type=h100 File={files}\n"

    def _conf(self, timeout_s: int, gpus: bool, more: str) -> str:
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        gres = f" Gres=gpu:h100:{self.gpus}" if gpus else ""
        if self.namespaces:
            host = f"{CTL}({NET}.250)"
            nodes = [
                f"NodeName=n[1-{self.count}] NodeAddr={NET}.[1-{self.count}] CPUs=8 RealMemory=4000{gres}"
            ]
        else:
            host = f"{socket.gethostname()}(127.0.0.1)\nSlurmctldPort={self._ports[0]}"
            nodes = [
                f"NodeName=n{number} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 "
                f"Port={self._ports[number]} CPUs=8 RealMemory=4000{gres}"
                for number in range(1, self.count + 1)
            ]
        text = (HERE / "slurm.conf").read_text()
        words = {"HOST": host, "USER": user, "FOLDER": str(self.folder), "TIMEOUT": str(timeout_s)}
        for name, value in words.items():
            text = text.replace(f"@{name}@", value)
        parts = [
            f"PartitionName={name} Nodes=n[1-{self.count}] MaxTime=INFINITE State=UP {more_of}"
            for name, more_of in (("train", "Default=YES"), ("urgent", "PriorityTier=2"))
        ]
        return "\n".join([text, *(["GresTypes=gpu"] if gpus else []), *nodes, *parts, more, ""])


def _locked(folder: Path) -> int:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _sweep() -> None:
    """Removes the folders of clusters whose test process was killed; their processes have ended with it.

    One that was only just made may be about to be locked by another test process.
    """
    for folder in Path("/tmp").glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < YOUNG_S:
                continue
            lock = _locked(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
