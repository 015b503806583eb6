"""Stands between Holdfast and one worker's command: starts it, records what happens to it, ends it.

One small process per attempt and worker, run as `python -I -S reaper.py SPEC.json`; standard library
only, nothing of Holdfast. It is the subreaper of everything the command starts, so a process that
double-forks or changes its session still is in its tree. It outlives a Holdfast that is killed, and
then either ends the tree (default) or goes on recording (`detach`), so that nothing is lost.

Facts go one JSON object a line to `reaper.jsonl` in the worker's folder and to every client of
`reaper.sock`. It never decides anything: it is told to stop, or its lifeline is cut.
"""

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_IDLE_S = 1.0
POLL_STARTING_S = 0.1
POLL_STOPPING_S = 0.02
STARTING_S = 30.0  # how long new ranks are looked for often
YOUNG_S = 5.0  # a process may still become a rank: fork and exec are two moments
DOOMED_GRACE_S = 0.3  # for a launcher and helpers whose ranks are all gone
LOST_LIFELINE_GRACE_S = 2.0
UNKILLABLE_S = 10.0  # after SIGKILL: what still lives then is in state D
CLIENT_BUFFER_BYTES_MAX = 1 << 20
FACTS_HELD_MAX = 10_000
LINGER_S = 1.0
IGNORED_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGPIPE,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)


def prctl(option, value):
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


# /proc ---------------------------------------------------------------------------------------------------


def read(path, size_bytes=1 << 16):
    """The file's first bytes; empty when it is gone or may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, size_bytes)
    except OSError:
        return b""
    finally:
        os.close(fd)


def stat_fields(pid):
    """The fields of /proc/PID/stat from the third on: state, ppid, ...; empty when it is gone."""
    data = read("/proc/%d/stat" % pid, 4096)
    return data[data.rfind(b")") + 2 :].split() if data else []


def children_by_parent():
    """{ppid: [pid, ...]} of the whole machine: exact, and too dear for every second."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if len(fields) > 1:
                found.setdefault(int(fields[1]), []).append(int(name))
    return found


def descendants(root):
    below = children_by_parent()
    found, todo = [], [root]
    while todo:
        for pid in below.get(todo.pop(), ()):
            found.append(pid)
            todo.append(pid)
    return found


def children(pid):
    """Children forked by the main thread: one small read."""
    return [int(word) for word in read("/proc/%d/task/%d/children" % (pid, pid)).split()]


def rank_facts(pid):
    """What the environment of a rank says; None for a process without RANK."""
    environ = read("/proc/%d/environ" % pid, 1 << 20)
    if b"RANK=" not in environ:
        return None
    pairs = dict(item.split(b"=", 1) for item in environ.split(b"\0") if b"=" in item)
    if not pairs.get(b"RANK", b"").isdigit():
        return None
    number = {key: pairs.get(key, b"") for key in (b"LOCAL_RANK", b"WORLD_SIZE", b"MASTER_PORT")}
    as_int = {key: int(value) if value.isdigit() else None for key, value in number.items()}
    return {
        "rank": int(pairs[b"RANK"]),
        "local_rank": as_int[b"LOCAL_RANK"],
        "world_size": as_int[b"WORLD_SIZE"],
        "master_addr": pairs.get(b"MASTER_ADDR", b"").decode("utf-8", "replace"),
        "master_port": as_int[b"MASTER_PORT"],
    }


def zombie_code(pid):
    """How a process ended that is not our child, read before its parent collects it. None: too late."""
    fields = stat_fields(pid)
    if len(fields) < 50 or fields[0] not in (b"Z", b"X"):
        return None
    return code_of(int(fields[49]))


def code_of(status):
    return -(status & 0x7F) if status & 0x7F else (status >> 8) & 0xFF


def send_signal(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


# The command ---------------------------------------------------------------------------------------------


def start(spec):
    """Forks and execs the command. Returns (pid, None), or (None, (errno, what)) when it cannot be run."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        become_command(spec, write_end)
    os.close(write_end)
    error = b""
    while True:
        part = os.read(read_end, 4096)
        if not part:
            break
        error += part
    os.close(read_end)
    if not error:
        return pid, None
    os.waitpid(pid, 0)
    number, _, what = error.decode("utf-8", "replace").partition(" ")
    return None, (int(number), what)


def become_command(spec, error_fd):
    """In the child: its own session, default signals, output to files, then exec. Never returns."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in signal.valid_signals():
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                try:
                    signal.signal(number, signal.SIG_DFL)
                except (OSError, ValueError):
                    pass
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        place_output(spec)
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as error:
        os.write(error_fd, ("%d %s" % (error.errno or errno.EIO, error)).encode())
    except BaseException as error:
        os.write(error_fd, ("%d %r" % (errno.EINVAL, error)).encode())
    os._exit(127)


def place_output(spec):
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    sources = [os.open(spec.get("stdin") or os.devnull, os.O_RDONLY)]
    for name in ("stdout", "stderr"):
        try:
            sources.append(os.open(spec[name], flags, 0o644))
        except OSError:  # a read-only or full state folder must not keep the training from running
            sources.append(os.open(os.devnull, os.O_WRONLY))
    for target, source in enumerate(sources):
        os.dup2(source, target)


# The reaper ----------------------------------------------------------------------------------------------


class Stop:
    """A stop under way: first the command may finish by itself, then SIGTERM, grace, SIGKILL."""

    def __init__(self, now_s, finish_s, grace_s):
        self.finish_until_s = now_s + finish_s
        self.grace_s = grace_s
        self.term_at_s = None
        self.kill_at_s = None
        self.killing_since_s = None
        self.killed = set()


class Reaper:
    def __init__(self, spec):
        self.spec = spec
        self.dir_fd = os.open(spec["dir"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.facts = []
        self.unwritten = []
        self.log_fd = None
        self.poll = select.poll()
        self.clients = {}  # fd -> [socket, bytes in, bytes out, follows]
        self.ranks = {}  # pid -> facts of ranks that live
        self.pidfds = {}  # fd -> pid
        self.not_ranks = {}  # pid -> when first seen
        self.any_rank = False
        self.command = None
        self.command_code = None
        self.stop = None
        self.stopped = False
        self.detached = bool(spec.get("detach"))
        self.lifeline = spec.get("lifeline_fd")
        self.bye = False
        self.gate_fd = None
        self.started_s = time.monotonic()
        self.scanned_s = 0.0
        self.quiet_since_s = None
        self.pids_seen = set()

    # Facts

    def fact(self, kind, **values):
        values.update(kind=kind, t=time.time(), n=len(self.facts) + 1)
        line = json.dumps(values).encode() + b"\n"
        self.facts.append(line)
        self.unwritten.append(line)
        self.write_facts()
        for fd in list(self.clients):
            if self.clients[fd][3]:
                self.give(fd, line)

    def write_facts(self):
        """A disk that is full or gone costs the file some lines for now, never the training anything."""
        try:
            if self.log_fd is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self.log_fd = os.open("reaper.jsonl", flags, 0o644, dir_fd=self.dir_fd)
            while self.unwritten:
                os.write(self.log_fd, self.unwritten[0])
                self.unwritten.pop(0)
        except OSError:
            del self.unwritten[:-FACTS_HELD_MAX]

    # Set-up

    def run(self):
        self.open_socket()
        self.close_gate()
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.woken = woken
        self.poll.register(woken, select.POLLIN)
        if self.lifeline is not None:
            self.poll.register(self.lifeline, select.POLLIN)
        self.command, error = start(self.spec)
        if error:
            self.fact("start-failed", errno=error[0], error=error[1])
            self.stopped = True
        else:
            self.fact("started", pid=self.command, reaper=os.getpid())
        while not self.done():
            self.once()
        self.write_facts()

    def open_socket(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            os.unlink("reaper.sock", dir_fd=self.dir_fd)
        except OSError:
            pass
        try:  # by way of the folder's descriptor: its path may be longer than a socket's name can be
            self.listener.bind("/proc/self/fd/%d/reaper.sock" % self.dir_fd)
            self.listener.listen(8)
            self.listener.setblocking(False)
            self.poll.register(self.listener, select.POLLIN)
        except OSError as error:
            self.fact("no-socket", error=str(error))
        given = self.spec.get("client_fd")
        if given is not None:
            self.add_client(socket.socket(fileno=given))

    def close_gate(self):
        if self.spec.get("gate"):
            self.gate_fd = os.open(self.spec["gate"], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self.gate_fd, fcntl.LOCK_EX)

    # The loop

    def once(self):
        for fd, _ in self.poll.poll(self.wait_s() * 1000):
            if fd == self.woken:
                self.drain_wakeups()
            elif fd == self.lifeline:
                self.lifeline_cut()
            elif fd == self.listener.fileno():
                self.accept()
            elif fd in self.clients:
                self.serve(fd)
            elif fd in self.pidfds:
                self.rank_gone(fd)
        self.collect()
        self.look_for_ranks()
        if self.stop:
            self.go_on_stopping()

    def wait_s(self):
        if self.stop:
            return POLL_STOPPING_S
        if time.monotonic() - self.started_s < STARTING_S and not self.all_ranks_found():
            return POLL_STARTING_S
        return POLL_IDLE_S

    def all_ranks_found(self):
        return bool(self.ranks) and all(
            len(self.ranks) >= (facts["world_size"] or 1 << 30) for facts in self.ranks.values()
        )

    def done(self):
        """Nothing is left to watch, and nobody needs to be told."""
        now_s = time.monotonic()
        ended = self.stopped or (self.command_code is not None and not self.children_left())
        if not ended:
            self.quiet_since_s = None
            return False
        if self.bye or (self.lifeline is None and not self.clients):
            if self.quiet_since_s is None:
                self.quiet_since_s = now_s
            return self.bye or now_s - self.quiet_since_s > LINGER_S
        return False

    def children_left(self):
        return bool(children(os.getpid()))

    def drain_wakeups(self):
        try:
            while os.read(self.woken, 512):
                pass
        except OSError:
            pass

    # Processes

    def collect(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except OSError:
                return
            if pid == 0:
                return
            code = code_of(status)
            if pid in self.ranks:
                self.rank_ended(pid, code)
            if pid == self.command:
                self.command_code = code
                self.fact("command-exited", pid=pid, code=code)

    def look_for_ranks(self):
        now_s = time.monotonic()
        often = now_s - self.started_s < STARTING_S and not self.all_ranks_found()
        if self.stopped or now_s - self.scanned_s < (POLL_STARTING_S if often else POLL_IDLE_S) * 0.9:
            return
        self.scanned_s = now_s
        seen = set()
        todo = [pid for pid in children(os.getpid())]
        while todo:
            pid = todo.pop()
            seen.add(pid)
            if pid not in self.ranks and not self.new_rank(pid, now_s):
                todo.extend(children(pid))
        self.not_ranks = {pid: since_s for pid, since_s in self.not_ranks.items() if pid in seen}

    def new_rank(self, pid, now_s):
        since_s = self.not_ranks.setdefault(pid, now_s)
        if now_s - since_s > YOUNG_S:
            return False
        facts = rank_facts(pid)
        if facts is None or pid == self.command and self.below_is_another_rank(pid, facts["rank"]):
            return False
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        self.poll.register(fd, select.POLLIN)
        self.pidfds[fd] = pid
        self.ranks[pid] = facts
        self.any_rank = True
        self.fact("rank-started", pid=pid, **facts)
        return True

    def below_is_another_rank(self, pid, rank):
        """A launcher started with RANK of its own set (inside a Slurm task, say) is not the rank."""
        below = [rank_facts(child) for child in children(pid)]
        return any(facts and facts["local_rank"] is not None and facts["rank"] != rank for facts in below)

    def rank_gone(self, fd):
        pid = self.pidfds[fd]
        if pid in self.ranks:
            self.rank_ended(pid, zombie_code(pid))

    def rank_ended(self, pid, code):
        facts = self.ranks.pop(pid)
        for fd in [fd for fd, owner in self.pidfds.items() if owner == pid]:
            self.poll.unregister(fd)
            os.close(fd)
            del self.pidfds[fd]
        self.fact("rank-exited", pid=pid, rank=facts["rank"], code=code)

    # Ending

    def ask_stop(self, finish_s, grace_s, why):
        if self.stopped:
            self.fact("stopped", killed=[], left=[])
            return
        now_s = time.monotonic()
        if self.stop is None:
            self.fact("stopping", grace_s=grace_s, why=why)
            self.stop = Stop(now_s, finish_s, grace_s)
        else:  # a later, harder wish wins
            self.stop.finish_until_s = min(self.stop.finish_until_s, now_s + finish_s)
            self.stop.grace_s = min(self.stop.grace_s, grace_s)
            if self.stop.term_at_s is not None:
                self.stop.kill_at_s = min(self.stop.kill_at_s, self.stop.term_at_s + grace_s)

    def go_on_stopping(self):
        stop, now_s = self.stop, time.monotonic()
        tree = descendants(os.getpid())
        self.pids_seen.update(tree)
        if not tree:
            return self.all_gone([])
        if stop.term_at_s is None:
            if now_s < stop.finish_until_s and (self.command_code is None or self.ranks):
                return None
            stop.term_at_s, stop.kill_at_s = now_s, now_s + stop.grace_s
            self.terminate(tree)
        if self.any_rank and not self.ranks:
            stop.kill_at_s = min(stop.kill_at_s, now_s + DOOMED_GRACE_S, stop.term_at_s + stop.grace_s)
        self.kill_what_gets_no_grace(tree)
        if now_s >= stop.kill_at_s:
            self.kill(tree)
            stop.killing_since_s = stop.killing_since_s or now_s
            if now_s - stop.killing_since_s > UNKILLABLE_S:
                return self.all_gone(tree)
        return None

    def terminate(self, tree):
        if self.stop.grace_s > 0:
            for pid in tree:
                send_signal(pid, signal.SIGTERM)

    def kill_what_gets_no_grace(self, tree):
        """A stopped process cannot act on SIGTERM, and one in state D will not before it is too late."""
        stuck = [pid for pid in tree if (stat_fields(pid) or [b"?"])[0] in (b"T", b"t")]
        self.kill(stuck)
        if self.stop.term_at_s + 0.1 < time.monotonic():
            self.kill([pid for pid in tree if (stat_fields(pid) or [b"?"])[0] == b"D"])

    def kill(self, pids):
        for pid in pids:
            send_signal(pid, signal.SIGKILL)
            self.stop.killed.add(pid)

    def all_gone(self, left):
        self.collect()
        if not left:
            self.sweep_shared_memory()
        self.fact("stopped", killed=sorted(self.stop.killed), left=left)
        self.stop = None
        self.stopped = not left

    def sweep_shared_memory(self):
        """PyTorch names its segments torch_<pid>_...; a killed process leaves them behind."""
        try:
            names = os.listdir("/dev/shm")
        except OSError:
            return
        for name in names:
            parts = name.split("_")
            if parts[0] == "torch" and len(parts) > 2 and parts[1].isdigit() and int(parts[1]) in self.pids_seen:
                try:
                    os.unlink("/dev/shm/" + name)
                except OSError:
                    pass

    def lifeline_cut(self):
        self.poll.unregister(self.lifeline)
        os.close(self.lifeline)
        self.lifeline = None
        self.fact("lifeline-lost", detached=self.detached)
        if not self.detached and not self.stopped:
            self.ask_stop(0.0, LOST_LIFELINE_GRACE_S, "Holdfast is gone")

    # Clients

    def accept(self):
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        packed = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", packed)[1]
        if uid not in (os.getuid(), 0):
            client.close()
            return
        self.add_client(client)

    def add_client(self, client):
        client.setblocking(False)
        self.clients[client.fileno()] = [client, b"", b"", False]
        self.poll.register(client, select.POLLIN)

    def drop_client(self, fd):
        client = self.clients.pop(fd)[0]
        self.poll.unregister(fd)
        client.close()

    def give(self, fd, line):
        """Never waits: a client that does not read loses its connection, not the reaper its time."""
        entry = self.clients[fd]
        entry[2] += line
        self.flush_client(fd)

    def flush_client(self, fd):
        entry = self.clients[fd]
        try:
            entry[2] = entry[2][entry[0].send(entry[2]) :]
        except BlockingIOError:
            pass
        except OSError:
            return self.drop_client(fd)
        if len(entry[2]) > CLIENT_BUFFER_BYTES_MAX:
            return self.drop_client(fd)
        self.poll.modify(fd, select.POLLIN | (select.POLLOUT if entry[2] else 0))

    def serve(self, fd):
        entry = self.clients[fd]
        if entry[2]:
            self.flush_client(fd)
        if fd not in self.clients:
            return
        try:
            data = entry[0].recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            return self.drop_client(fd)
        *lines, entry[1] = (entry[1] + data).split(b"\n")
        for line in lines:
            if fd in self.clients:
                self.obey(fd, line)

    def obey(self, fd, line):
        try:
            wish = json.loads(line)
            do = wish["do"]
        except (ValueError, KeyError, TypeError):
            return
        if do == "follow":
            self.clients[fd][3] = True
            self.give(fd, b"".join(self.facts[int(wish.get("from", 0)) :]) or b"")
        elif do == "stop":
            self.ask_stop(float(wish.get("finish_s", 0)), float(wish.get("grace_s", 30)), wish.get("why", ""))
        elif do == "signal" and self.command and self.command_code is None:
            try:
                os.killpg(self.command, int(wish["signal"]))
            except OSError:
                pass
        elif do == "go":
            self.open_gate(wish.get("env", {}))
        elif do == "detach":
            self.detached = True
        elif do == "bye":
            self.bye = True

    def open_gate(self, env):
        if self.gate_fd is None:
            return
        path = self.spec["gate"] + ".go"
        with open(path + ".part", "w") as file:
            json.dump(env, file)
        os.rename(path + ".part", path)
        os.close(self.gate_fd)
        self.gate_fd = None
        self.fact("released")


def main():
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    os.unlink(sys.argv[1])  # it holds the whole environment, secrets too
    if os.getpid() != os.getsid(0):
        os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    Reaper(spec).run()


if __name__ == "__main__":
    main()
