"""Schedules the checks of this node: before a start, during a diagnosis, during training.

Reports the results as events, without evaluating them.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence

from holdfast.agent.evidence import EarlyDiagnosis
from holdfast.agent.nodes.checks import NodeChecker
from holdfast.core.checks.evidence import BOTH_PASSED, speaks_for_the_code, with_checks
from holdfast.core.verdict.patience import patience_s
from holdfast.model.checks import CONTINUOUS, ON_FAILURE
from holdfast.model.events import AnyEvent, FindingNoted, NodesChecked
from holdfast.model.orders import CheckNodes, Diagnose
from holdfast.model.settings import RunSettings
from holdfast.model.verdicts import UNKNOWN, Verdict


class Fitness:
    """Scheduler of the checks of this node. `own_pids`: returns the processes of the job, which do not count
    as foreign.
    """

    def __init__(
        self,
        checker: NodeChecker,
        settings: RunSettings,
        env: Mapping[str, str],
        clock: Callable[[], float],
        emit: Callable[[AnyEvent], None],
        own_pids: Callable[[], Sequence[int]],
    ) -> None:
        self.checker = checker
        self._settings = settings
        self._env = env
        self._clock = clock
        self._emit = emit
        self._own_pids = own_pids
        self._asked: Diagnose | None = None  # whose cause is looked for
        self._since_s = 0.0
        self._verdict: Verdict | None = None  # on it, once that is out
        self._is_judged_here = True

    def check(self, order: CheckNodes) -> None:
        program = self._settings.command[0] if self._settings.command else ""
        if shutil.which(program, path=self._env.get("PATH")) is None:
            # Its start says so, and leaves the exit code that a shell would.
            why_not = f"{program} does not exist or is not executable"
            at_s = self._clock()
            self._emit(NodesChecked(at_s=at_s, attempt=order.attempt, nodes=order.nodes, why_not=why_not))
            return
        if self.checker.runs(ON_FAILURE):
            self._report_late()
        self.checker.boot(order, self._own_pids())

    def hear(self) -> None:
        """Reports the results of a suite as soon as it is complete. Troubleshooting results wait for the
        verdict.
        """
        if self.checker.runs(ON_FAILURE):
            if self.checker.take_up() and self._verdict is not None:
                self._report_late()
            return
        answer = self.checker.poll()
        if answer is None:
            return
        if answer.context != CONTINUOUS:
            self._emit(answer)
            return
        for trouble in self.checker.news(answer):
            text = f"seen on the node while it trains: {trouble.text}" + (
                f". {trouble.advice}" if trouble.advice else ""
            )
            self._emit(FindingNoted(at_s=self._clock(), finding="check", text=text, attempt=answer.attempt))

    def trains(self, attempt: int) -> None:
        self.checker.note_step()
        self.checker.look_again(attempt, self._own_pids)

    def troubleshoot(self, order: Diagnose, early: EarlyDiagnosis, *, living: bool) -> bool:
        """Starts troubleshooting. Returns True if the verdict should wait for its findings.

        Findings after the verdict are reported separately.
        """
        policy = self._settings.policy
        wait_s = policy.troubleshoot_wait_s
        if not wait_s:
            return False
        at_s = self._clock()
        if self._asked != order or self._verdict is not None:
            self._asked, self._since_s, self._verdict = order, at_s, None
            pids = self._own_pids()
            self.checker.troubleshoot(order.attempt, early.first, wait_s, pids, living=living)
        wait_s = patience_s(early.first, policy, wait_s, is_certain=early.certain)
        if not wait_s:
            self.checker.give_way()
        return not self.checker.take_up() and at_s - self._since_s <= wait_s and wait_s > 0

    def with_checks(self, verdict: Verdict, order: Diagnose) -> Verdict:
        """Returns the verdict with the findings of troubleshooting so far; later findings are reported
        separately.
        """
        self._verdict = verdict
        if self._asked != order or not self.checker.runs(ON_FAILURE):
            return verdict
        if not self.checker.take_up():
            self.checker.give_way()
            return verdict
        answer = self.checker.finish()
        if answer is None:
            return verdict
        self._report(answer, order)
        return with_checks(verdict, answer, order.boot, order.known)

    def give_way(self) -> None:
        """Continues troubleshooting at low priority, because the attempt has ended and the next one may start."""
        if self.checker.runs(ON_FAILURE):
            self.checker.give_way()

    def report_found(self, order: Diagnose) -> None:
        """Reports the findings of troubleshooting so far, if the controller makes the verdict."""
        self._verdict, self._is_judged_here = UNKNOWN, False
        if self._asked != order or not self.checker.runs(ON_FAILURE):
            return
        if not self.checker.take_up():
            self.checker.give_way()
            return
        answer = self.checker.finish()
        if answer is not None:
            self._emit(answer)

    def _report_late(self) -> None:
        """Reports the results of an unfinished suite; nothing if no check has finished."""
        is_all = self.checker.take_up()
        answer = self.checker.finish()
        if answer is not None and self._asked is not None and not answer.why_not:
            self._report(answer, self._asked, is_all=is_all)

    def _report(self, answer: NodesChecked, order: Diagnose, *, is_all: bool = True) -> None:
        self._emit(answer)
        if not self._is_judged_here:
            return
        if is_all and speaks_for_the_code(self._verdict or UNKNOWN, answer, order.boot, order.known):
            text = f"boot check and troubleshooting: {BOTH_PASSED[0].lower()}{BOTH_PASSED[1:]}"
            at_s = self._clock()
            self._emit(FindingNoted(at_s=at_s, finding="checks-passed", text=text, attempt=answer.attempt))
