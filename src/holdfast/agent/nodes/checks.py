"""Runs checks of this node for a job: before a start, after a failure, and at intervals during training.

Never waits: suites run in their own processes, and this module polls them. An internal error here affects
only the checks; if a suite cannot run, the result contains the reason.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from holdfast.checks.baseline_store import baseline_path, change_baseline, read_baseline
from holdfast.checks.last_good import read_last_good, write_last_good
from holdfast.checks.listing import SpecList
from holdfast.checks.runner import SuiteRun
from holdfast.checks.scene import scene_for
from holdfast.core.checks.answers import answered, key_of
from holdfast.core.checks.learning import learned
from holdfast.core.checks.plan import before_a_start, troubleshooting, while_training
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    FAIL,
    ON_FAILURE,
    Baseline,
    NodeChecks,
    Outcome,
    Scene,
    Spec,
)
from holdfast.model.events import CheckFinding, NodesChecked
from holdfast.model.orders import CheckNodes
from holdfast.model.settings import RunSettings
from holdfast.model.verdicts import Verdict

FULL_S = 60.0
CONTINUOUS_S = 20.0
LATE_TIMES = 3.0  # of its time, at most, for a boot check whose processes wait for a processor
GOOD_AGAIN_S = 600.0
LEARN_S = 1.0  # at the end, for what was learned to be written
REPORTED_MAX = 256


class Asked(Struct, frozen=True, kw_only=True):
    """The purpose and the time limits of a running suite of checks. `until_s`, `at_latest_s` (see SuiteRun):
    monotonic clock.
    """

    context: str
    attempt: int
    nodes: tuple[str, ...]
    until_s: float
    began_s: float
    at_latest_s: float | None = None


class NodeChecker:
    """Runs one suite of node checks at a time. A new request ends the running suite, except a repeated boot
    check.

    `host`: the node's name in the engine. `clock`: the job's clock.
    """

    def __init__(
        self,
        settings: RunSettings,
        host: str,
        env: Mapping[str, str],
        cwd: str,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        specs: Sequence[Spec] | None = None,
        start: Callable[..., SuiteRun] = SuiteRun,
    ) -> None:
        self.last: dict[str, NodeChecks] = {}  # by context, for the evidence
        self._settings = settings
        self._host = host
        self._env = env
        self._cwd = cwd
        self._clock = clock
        self._monotonic = monotonic
        self._start = start
        self._all = specs  # every check there is, once that has been read
        self._listing: SpecList | None = None
        self._choose: Callable[[Sequence[Spec]], Sequence[Spec]] = tuple
        self._scene = Scene()
        self._state_dir = Path(settings.state_dir)
        self._asked: Asked | None = None
        self._run: SuiteRun | None = None
        self._outcomes: list[Outcome] = []
        self._specs: Sequence[Spec] = ()
        self._why_not = ""
        self._gives_way = False
        self._learning: threading.Thread | None = None
        self._good_s = float("-inf")  # when it was last written down that a step was made
        self._continuous_s = monotonic()
        self._reported: dict[str, None] = {}  # troubles that are no news any more

    # Questions --------------------------------------------------------------------------------------------

    def boot(self, order: CheckNodes, own_pids: Sequence[int]) -> None:
        """Starts the boot check; a repeated request keeps the running one."""
        asked = self._asked
        if asked is not None and (asked.context, asked.attempt) == (BOOT, order.attempt):
            return
        quick = order.suite == "quick"
        limit_s = self._settings.quick_check_s if quick else FULL_S
        self._begin(
            BOOT,
            order.attempt,
            limit_s,
            lambda specs: before_a_start(specs, quick=quick),
            own_pids,
            nodes=order.nodes,
            quick=quick,
        )

    def troubleshoot(
        self, attempt: int, verdict: Verdict, limit_s: float, own_pids: Sequence[int], *, living: bool
    ) -> None:
        """Starts the troubleshooting suite after a failure.

        `living`: processes of the attempt still run, so only passive checks run. `own_pids`: processes of the
        job.
        """

        def choose(specs: Sequence[Spec]) -> Sequence[Spec]:
            return troubleshooting(specs, verdict.category, verdict.class_, living=living)

        self._begin(ON_FAILURE, attempt, limit_s, choose, own_pids, training=living)

    def _begin(
        self,
        context: str,
        attempt: int,
        limit_s: float,
        choose: Callable[[Sequence[Spec]], Sequence[Spec]],
        own_pids: Sequence[int],
        *,
        nodes: tuple[str, ...] = (),
        quick: bool = False,
        training: bool = False,
    ) -> None:
        self.close()
        now_s = self._monotonic()
        self._asked = Asked(
            context=context,
            attempt=attempt,
            nodes=nodes or (self._host,),
            until_s=now_s + limit_s,
            began_s=now_s,
            at_latest_s=now_s + LATE_TIMES * limit_s if quick and context == BOOT else None,
        )
        self._outcomes, self._specs = [], ()
        try:
            self._choose = choose
            self._scene = scene_for(
                self._settings.command,
                self._env,
                self._cwd,
                context=context,
                quick=quick,
                training=training,
                baseline=self._known(),
                good_s=read_last_good(self._state_dir, self._host),
                own_pids=own_pids,
                options=dict(option.split("=", 1) for option in self._settings.check_options),
            )
            if self._all is None:
                self._listing = SpecList()
            else:
                self._go(self._all, now_s + limit_s)
        except Exception as error:  # noqa: BLE001 - a fault of the checks must not keep the training from its start
            self._give_up(error)

    def _go(self, specs: Sequence[Spec], until_s: float) -> None:
        self._specs = self._choose(specs)
        asked = self._asked
        latest_s = asked.at_latest_s if asked is not None else None
        self._run = self._start(
            self._specs, self._scene, until_s, clock=self._monotonic, at_latest_s=latest_s
        )
        if self._gives_way:
            self._run.give_way()
        self._outcomes += self._run.poll()

    def _known(self) -> Baseline:
        try:
            return read_baseline(baseline_path(self._state_dir, self._host))
        except OSError:
            return Baseline()

    # Answers ----------------------------------------------------------------------------------------------

    def runs(self, context: str) -> bool:
        return self._asked is not None and self._asked.context == context

    def take_up(self) -> bool:
        """Collects results of the running suite. Returns True if the suite is complete."""
        try:
            if self._listing is not None and self._asked is not None:
                return self._read_list(self._listing, self._asked)
            if self._run is not None:
                self._outcomes += self._run.poll()
        except Exception as error:  # noqa: BLE001 - a fault of the checks must not cost the job its recovery
            self._give_up(error)
        return self._run is None or self._run.over

    def _read_list(self, listing: SpecList, asked: Asked) -> bool:
        """Reads the list of checks.

        Returns whether the suite is already finished, because its time sufficed only for the list.
        """
        until_s = asked.until_s
        if asked.at_latest_s is not None:
            until_s = min(until_s + listing.waited_s(), asked.at_latest_s)
        if self._monotonic() >= until_s:
            listing.close()
            self._listing = None
            return True
        if (specs := listing.read()) is not None:
            self._all, self._listing = specs, None
            self._go(specs, until_s)
        return False

    def channels(self) -> list[int]:
        if self._listing is not None:
            return [self._listing.channel]
        return self._run.channels() if self._run is not None else []

    def poll(self) -> NodesChecked | None:
        """Returns the result of the requested suite once it is complete, else None.

        Checks during training return their results by `news` instead.
        """
        return self.finish() if self._asked is not None and self.take_up() else None

    def give_way(self) -> None:
        """Lowers the priority of the running suite: its result is not needed any more, and the next attempt
        may start.
        """
        self._gives_way = True
        if self._run is not None:
            self._run.give_way()

    def finish(self) -> NodesChecked | None:
        """Ends the running suite and returns its results so far; checks that have not run are left out."""
        asked = self._asked
        if asked is None:
            return None
        seconds = self._monotonic() - asked.began_s
        why_not = self._why_not
        self.close()
        order = {spec.name: place for place, spec in enumerate(self._specs)}
        outcomes = sorted(self._outcomes, key=lambda outcome: order.get(outcome.check, len(order)))
        checks = NodeChecks(
            node=self._host,
            outcomes=tuple(outcomes),
            seconds=seconds,
            at_s=time.time(),
            why_not=why_not or ("" if outcomes else "there was no time for any check"),
        )
        self.last[asked.context] = checks
        answer = answered((checks,), asked.attempt, asked.context, self._clock())
        if asked.context == BOOT:
            self._note_boot(checks, answer)
        return answer

    def _note_boot(self, checks: NodeChecks, answer: NodesChecked) -> None:
        self._reported |= dict.fromkeys(key_of(finding) for finding in answer.troubles)
        self._continuous_s = self._monotonic()
        if answer.status != FAIL and checks.outcomes:
            self._learning = threading.Thread(target=self._learn, args=(checks,), daemon=True)
            self._learning.start()

    def _learn(self, checks: NodeChecks) -> None:
        """Stores what the checks learned; in a thread, because it waits for a lock. Without the folder nothing is learned."""
        store = baseline_path(self._state_dir, self._host)
        try:
            change_baseline(store, lambda before: learned(before, checks.outcomes, checks.at_s))
        except OSError:
            return

    def _give_up(self, error: Exception) -> None:
        self._why_not = f"{type(error).__name__}: {error}; please report it"
        if self._run is not None:
            self._run.close()
        self._run = None
        if self._listing is not None:
            self._listing.close()
        self._listing = None

    # While it trains --------------------------------------------------------------------------------------

    def look_again(self, attempt: int, own_pids: Callable[[], Sequence[int]]) -> None:
        """Starts the passive quick checks if their interval has passed, unless a suite runs."""
        every_s, now_s = self._settings.check_every_s, self._monotonic()
        if not every_s or self._asked is not None or now_s - self._continuous_s < every_s:
            return
        self._continuous_s = now_s
        self._begin(CONTINUOUS, attempt, CONTINUOUS_S, while_training, own_pids(), quick=True, training=True)

    def news(self, answer: NodesChecked) -> list[CheckFinding]:
        """Returns the findings in the results of a check during training that were not reported before in
        this run.
        """
        new = [finding for finding in answer.troubles if key_of(finding) not in self._reported]
        if len(self._reported) < REPORTED_MAX:
            self._reported |= dict.fromkeys(key_of(finding) for finding in new)
            return new
        return []

    def note_step(self) -> None:
        """Records that a training step completed, so that the node was good at that time."""
        now_s = self._monotonic()
        if now_s - self._good_s >= GOOD_AGAIN_S:
            self._good_s = now_s
            write_last_good(self._state_dir, self._host, time.time())

    def end(self) -> None:
        self.close()
        if self._learning is not None:
            self._learning.join(LEARN_S)

    def close(self) -> None:
        """Ends the running suite without a result."""
        if self._run is not None:
            self._run.close()
        if self._listing is not None:
            self._listing.close()
        self._run = self._listing = None
        self._asked = None
        self._why_not = ""
        self._gives_way = False
