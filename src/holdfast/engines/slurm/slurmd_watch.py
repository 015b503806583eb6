"""Checks whether the slurmd of each node listens, and warns before Slurm acts on one that does not."""

from collections.abc import Callable, Mapping, Sequence

from holdfast.engines.slurm.probe import Probe
from holdfast.parsers.slurm import SlurmNode, seconds_of

POLL_S, POLL_SOON_S = 10.0, 2.0  # the latter for `SOON_FOR_S` after a slurmd stopped answering
SOON_FOR_S = 60.0
PROBE_S = 1.2  # a reachable machine answers at least one of several packets within this time
ROUND_MAX = 256  # nodes probed at a time
DEFAULT_PORT = 6818
SILENT_S = 5.0
GIVE_UP_PART = 0.6  # of SlurmdTimeout; after all of it Slurm ends a job that was not submitted with --no-kill


class SlurmdWatch:
    """Checks whether the slurmd of each node listens. `seen`: the engine's nodes by name, as Slurm last described
    them.

    `lost`: called when Slurm is about to give up a node, and to end the whole job with it. `settings`: Slurm's
    configuration, once known.
    """

    def __init__(
        self,
        seen: Mapping[str, SlurmNode],
        note: Callable[[str], None],
        lost: Callable[[str], None],
        clock: Callable[[], float],
        *,
        no_kill: bool,
    ) -> None:
        self._seen, self._note, self._lost, self._clock = seen, note, lost, clock
        self._no_kill = no_kill
        self.settings: Mapping[str, str] = {}
        self._silent_since: dict[str, float] = {}
        self._noted: set[str] = set()
        self._probes: dict[str, Probe] = {}
        self._next = 0

    def poll_s(self, now_s: float) -> float:
        """Returns the interval of queries about nodes, in seconds."""
        is_new = any(now_s - since_s < SOON_FOR_S for since_s in self._silent_since.values())
        return POLL_SOON_S if is_new else POLL_S

    def heard(self, node: SlurmNode, *, is_gone: bool) -> None:
        """Processes Slurm's description of a node.

        A slurmd may be gone while the training runs; later, Slurm gives up its node.
        """
        if node.is_down or is_gone:
            self._silent_since.pop(node.name, None)
        elif not node.answers:
            self._is_silent(node.name)

    def begin_round(self, remaining: Sequence[str], now_s: float) -> None:
        """Tests the next nodes, at most `ROUND_MAX`, because Slurm itself notices late that a slurmd is
        gone.
        """
        names = [name for name in remaining if name in self._seen and name not in self._probes]
        some = [names[(self._next + number) % len(names)] for number in range(min(len(names), ROUND_MAX))]
        self._next += len(some)
        for name in some:
            node = self._seen[name]
            if node.address:
                self._probes[name] = Probe(node.address, port_of(node, self.settings), now_s, PROBE_S)

    def turn(self, now_s: float) -> None:
        over = {name: probe for name, probe in self._probes.items() if probe.look(now_s) is not None}
        for name, probe in over.items():
            del self._probes[name]
            if probe.refused:
                self._is_silent(name)
            elif probe.answer and self._seen[name].answers:
                self._silent_since.pop(name, None)
                self._noted.discard(name)

    def _is_silent(self, name: str) -> None:
        now_s = self._clock()
        silent_s = now_s - self._silent_since.setdefault(name, now_s)
        if silent_s < SILENT_S:  # slurmctld has just started, and waits for all of them
            return
        limit_s = seconds_of(self.settings.get("SlurmdTimeout", ""), 300.0)
        if name not in self._noted:
            self._noted.add(name)
            then = "takes the node from the job" if self._no_kill else "ends the whole job"
            self._note(
                f"slurmd on {name} does not answer Slurm, which {then} after {limit_s:g} s (SlurmdTimeout), "
                f"whatever runs there; start slurmd on {name} again"
            )
        if not self._no_kill and limit_s and silent_s > GIVE_UP_PART * limit_s:
            self._lost(name)


def port_of(node: SlurmNode, settings: Mapping[str, str]) -> int:
    """Returns the port on which the node's slurmd listens."""
    default = settings.get("SlurmdPort", "")
    return node.port or (int(default) if default.isdigit() else DEFAULT_PORT)
