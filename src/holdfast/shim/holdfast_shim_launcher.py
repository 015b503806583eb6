"""Part of the shim: holds the launcher (torchrun) of a standby, and lets it continue when it is released.

The launcher is held before it reads its environment, so it has not joined a rendezvous: the address comes
through the gate. Its imports are done, and its ranks were started as in the previous attempt; they wait at
their own gates. When the launcher starts a rank, it gets that process instead of a new one, if command and
environment are the same except for variables that may come late. Otherwise its ranks start as usual.

It never releases a rank that the launcher did not start. Loaded by `sitecustomize`; Python 3.6.
"""

import fcntl
import importlib
import json
import os
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
IMPORTS = [
    "torch.distributed.run",
    "torch.distributed.elastic.agent.server.local_elastic_agent",
    "torch.distributed.elastic.rendezvous.static_tcp_rendezvous",
    "torch.distributed.elastic.rendezvous.c10d_rendezvous_backend",
    "torch.distributed.elastic.rendezvous.dynamic_rendezvous",
    HANDLER,
]
# Read by torch.distributed and by scripts when they begin, and not by anything when it is imported. RANK and the
# sizes are not among them: by these, in the environment it began with, a rank is found and known from outside.
LATE = {"MASTER_ADDR", "MASTER_PORT", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}
LATE |= {"NCCL_DEBUG_FILE", "GROUP_RANK", "ROLE_RANK"}
LATE_OF = ("HOLDFAST_", "MA_", "PET_", "TORCHELASTIC_")


class HeldRank:
    """A rank that waits at its gate.

    This process keeps the gate locked: if this process dies, the rank ends.
    """

    def __init__(self, gate: str, argv: "Sequence[str]", env: "Mapping[str, str]") -> None:
        self.gate = gate
        self.argv = list(argv)
        self.env = dict(env)
        self.lock = os.open(gate, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A reader of /proc takes it for a rank once the file that HOLDFAST_HELD names is there.
        held = {"HOLDFAST_GATE": gate, "HOLDFAST_HELD": gate + ".go"}
        self.process = subprocess.Popen(self.argv, env=dict(self.env, **held), start_new_session=True)

    def late(self, argv: "Sequence[str]", env: "Mapping[str, str]") -> "dict[str, str | None] | None":
        """Returns the changes of the environment for this start (None for a removed variable); None if the
        process is unusable.
        """
        if self.process.poll() is not None or list(argv) != self.argv:
            return None
        changes = {key: env.get(key) for key in set(env) | set(self.env) if env.get(key) != self.env.get(key)}
        if any(key not in LATE and not key.startswith(LATE_OF) for key in changes):
            return None
        return changes

    def let_go(self, changes: "Mapping[str, str | None]") -> None:
        with open(self.gate + ".part", "w") as file:
            json.dump(changes, file)
        os.rename(self.gate + ".part", self.gate + ".go")
        os.close(self.lock)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.lock)


class HeldLauncher:
    """A launcher that waits at its gate. `attempt`: runs a function and returns None if it fails.

    `gate`: the launcher's. `imports`: modules to import while it waits; none where the command itself is held, which
    is forked with those that it needs.
    """

    def __init__(self, gate: str, attempt: "Callable[..., Any]") -> None:
        self.gate = gate
        self.attempt = attempt
        self.imports = [] if os.environ.get("HOLDFAST_HOLDS") else IMPORTS
        self.ranks = {}  # type: dict[str, HeldRank]

    def start_ranks(self, listing: str) -> None:
        """Starts ranks from `listing`: JSON, a list of {"argv": [...], "env": {...}}, with additions to
        this environment.
        """
        with open(listing, encoding="utf-8") as file:
            wanted = json.load(file)
        for one in wanted:
            env = {key: value for key, value in os.environ.items() if key != "HOLDFAST_RANKS"}
            env.update(one["env"])
            number = env["RANK"]
            self.ranks[number] = HeldRank("%s.rank-%s" % (self.gate, number), one["argv"], env)

    def go_on(self) -> None:
        """Lets the launcher continue; it gets the waiting ranks when it starts ranks."""
        if self.ranks and not self.attempt(self._stand_in):
            self._end_ranks()  # of a PyTorch that starts them in another way

    def _stand_in(self) -> bool:
        handler = importlib.import_module(HANDLER).SubprocessHandler
        popen = handler._popen  # type: Callable[..., subprocess.Popen[bytes]]

        def started(this: object, args: "Sequence[str]", env: "dict[str, str]") -> "subprocess.Popen[bytes]":
            held = self.attempt(self._held, this, args, env)  # type: subprocess.Popen[bytes] | None
            if held is not None:
                return held
            self._end_ranks()
            return popen(this, args, env)

        handler._popen = started
        return True

    def _held(
        self, handler: object, args: "Sequence[str]", env: "dict[str, str]"
    ) -> "subprocess.Popen[bytes] | None":
        """Returns the waiting process for a rank, once; None if there is none, or a launcher starts its
        ranks again.
        """
        rank = self.ranks.get(env.get("RANK", ""))
        redirected = vars(handler).get("_stdout") or vars(handler).get("_stderr")
        changes = None if rank is None or redirected else rank.late(args, env)
        if rank is None or changes is None:
            return None
        rank.let_go(changes)
        del self.ranks[env["RANK"]]
        return rank.process

    def _end_ranks(self) -> None:
        while self.ranks:
            self.attempt(self.ranks.popitem()[1].end)
