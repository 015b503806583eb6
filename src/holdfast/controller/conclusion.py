"""Diagnoses why an attempt on many nodes failed: requests evidence from the agents of all workers, and makes
one verdict.

The waiting rules are those of a single node (`core.verdict.patience`): a certain verdict waits only for
evidence that is on its way; a verdict from an error that mentions other ranks waits for the evidence of those
ranks; a worker that does not respond delays the verdict only until its node counts as lost.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.checks.evidence import with_checks
from holdfast.core.diagnosis.concluded import concluded
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.verdict.conclude import (
    answer,
    first_of_many,
    joined_failure,
    joined_scene,
    joined_search,
    with_places,
)
from holdfast.core.verdict.patience import SURE_S, patience_s
from holdfast.core.workers.acts import Act, Forget, Send, Tell
from holdfast.core.workers.group import WorkerGroup
from holdfast.core.workers.orders import joined as joined_checks
from holdfast.model.checks import ON_FAILURE
from holdfast.model.events import AnyEvent, AttemptStartFailed, NodesChecked, RankStarted
from holdfast.model.failures import Failure
from holdfast.model.nodes.workers import FetchEvidence, WorkerEvidence
from holdfast.model.orders import CheckNodes, Diagnose
from holdfast.model.policy import Policy
from holdfast.model.samples import Hang
from holdfast.model.verdicts import Evidence, Verdict
from holdfast.observe.search.code_store import tables_for

LOOK_S = 3.5  # for flight records and stacks, for which each agent takes at most 3 s
AGAIN_S = 0.1  # between two evaluations of the evidence
SPARE_S = 5.0  # before the core's own time limit
LOST_S = 1.0  # added to the silence after which a node is lost


class Asked(Struct):
    """A diagnosis in progress. `nodes`, `evidence`: node name and received evidence of each worker, by worker
    number; newer evidence of a worker replaces the older.
    """

    order: Diagnose
    since_s: float
    nodes: dict[int, str]
    evidence: dict[int, WorkerEvidence] = {}
    checks: list[NodesChecked] = []
    looked_s: float = float("-inf")


class Case(Struct, frozen=True, kw_only=True):
    """A finished diagnosis with the evidence it rests on, from which the evidence bundle is written."""

    incident: int
    attempt: int
    at_s: float
    failure: Failure
    verdict: Verdict
    nodes: dict[int, str]
    evidence: tuple[WorkerEvidence, ...]
    checks: tuple[NodesChecked, ...]


class Concluding:
    """Diagnoses failed attempts on many nodes.

    `hang`: returns the hang that ended this attempt; None if there was none. `save`: writes the evidence
    bundle.
    """

    def __init__(
        self,
        worker_group: WorkerGroup,
        policy: Policy,
        signatures: Callable[[], KnowledgeBase],
        hang: Callable[[], Hang | None],
        world_size: Callable[[], int | None],
        save: Callable[[Case], None],
        silence_s: float,
    ) -> None:
        self._worker_group = worker_group
        self._policy = policy
        self._signatures = signatures
        self._hang = hang
        self._world_size = world_size
        self._save = save
        self._silence_s = silence_s
        self._asked: Asked | None = None
        self._workers: dict[int, int] = {}  # by rank
        self._start_error: tuple[int, str] = (0, "")  # of which attempt

    # What comes in ----------------------------------------------------------------------------------------

    def diagnose(self, order: Diagnose, at_s: float) -> list[Act]:
        team = self._worker_group.roster.team
        nodes = dict(team.nodes) if team.attempt == order.attempt else {}
        self._asked = Asked(order, at_s, nodes)
        ask = FetchEvidence(
            incident=order.incident,
            attempt=order.attempt,
            until_s=self._limit_s,
            boot=order.boot,
            known=order.known,
        )
        return [
            Send(
                node, self._worker_group.roster.order_id(f"incident-{order.incident}/evidence/{worker}"), ask
            )
            for worker, node in self._worker_group.workers(order.attempt).items()
        ]

    def heard(self, event: AnyEvent) -> None:
        """Processes an event of the job that `core` has handled, such as the start or the end of an
        attempt.
        """
        match event:
            case RankStarted():
                self._workers[event.rank] = event.worker
            case AttemptStartFailed():
                self._start_error = (event.attempt, event.reason)
            case NodesChecked() if event.context == ON_FAILURE and self._asked is not None:
                if event.attempt == self._asked.order.attempt:
                    self._asked.checks.append(event)

    def evidence(self, node: str, report: WorkerEvidence) -> None:
        asked = self._asked
        if asked is None or report.incident != asked.order.incident:
            return
        if report.attempt != asked.order.attempt or asked.nodes.get(report.worker) != node:
            return
        before = asked.evidence.get(report.worker)
        if before is None or report.revision >= before.revision:
            asked.evidence[report.worker] = report
        if before is None and len(asked.evidence) == len(asked.nodes):
            asked.looked_s = float("-inf")  # the last one that was waited for

    def turn(self, at_s: float) -> list[Act]:
        asked = self._asked
        if asked is None or at_s - asked.looked_s < AGAIN_S:
            return []
        asked.looked_s = at_s
        failure = self._failure(asked)
        first, is_certain = first_of_many(failure, asked.evidence.values())
        if self._waits(asked, failure, first, is_certain=is_certain, for_s=at_s - asked.since_s):
            return []
        self._asked = None
        verdict = self._verdict(asked, first)
        case = Case(
            incident=asked.order.incident,
            attempt=asked.order.attempt,
            at_s=at_s,
            failure=failure,
            verdict=verdict,
            nodes=asked.nodes,
            evidence=tuple(asked.evidence.values()),
            checks=tuple(asked.checks),
        )
        self._save(case)
        prefix = f"incident-{asked.order.incident}/"
        return [
            Tell(answer(verdict, asked.order.incident, at_s)),
            *(Forget(node, prefix) for node in asked.nodes.values()),
        ]

    # Waiting ----------------------------------------------------------------------------------------------

    @property
    def _limit_s(self) -> float:
        wait_s = max(self._policy.troubleshoot_wait_s, LOOK_S) + LOST_S
        return min(wait_s, max(LOST_S, self._policy.verdict_wait_s - SPARE_S))

    def _waits(
        self, asked: Asked, failure: Failure, first: Verdict, *, is_certain: bool, for_s: float
    ) -> bool:
        living = self._worker_group.workers(asked.order.attempt)
        open_ = [
            worker for worker in living if (known := asked.evidence.get(worker)) is None or not known.is_all
        ]
        if not open_ or failure.lost_nodes:
            return False
        silent = [node for node in living.values() if not self._worker_group.roster[node].is_reachable]
        if silent and not is_certain and for_s <= self._silence_s + LOST_S:
            return True  # soon it is known whether the node is lost, and nothing can go on before
        wait_s = patience_s(first, self._policy, self._limit_s, is_certain=is_certain)
        if wait_s:
            return for_s <= wait_s
        return any(worker not in asked.evidence for worker in living) and for_s <= SURE_S

    # The verdict ------------------------------------------------------------------------------------------

    def _failure(self, asked: Asked) -> Failure:
        roster = self._worker_group.roster
        lost = [node for node in asked.nodes.values() if roster[node].lost and not roster[node].with_job]
        failure = joined_failure(tuple(asked.evidence.values()), self._hang(), lost)
        attempt, why = self._start_error
        if attempt == asked.order.attempt and not failure.command_error:
            failure = replace(failure, command_error=why)
        return failure

    def _verdict(self, asked: Asked, first: Verdict) -> Verdict:
        """Returns the verdict from all evidence; after an internal error, the verdict without log lines."""
        evidence = tuple(asked.evidence.values())
        try:
            search = joined_search(evidence, asked.nodes)
            tables = tables_for({one.category for one in search.matches})
            looks = [one.looked for one in evidence if one.looked is not None]
            if looks:
                scene, lives = joined_scene(looks, self._world_size())
                verdict = concluded(first, search, self._signatures(), tables, scene, lives)
            else:
                verdict = concluded(first, search, self._signatures(), tables)
            if asked.checks:
                order = CheckNodes(attempt=asked.order.attempt, nodes=())
                checked = joined_checks(order, asked.checks, 0.0)
                verdict = with_checks(verdict, checked, asked.order.boot, asked.order.known)
        except Exception as error:  # noqa: BLE001 - hundreds of rules must not cost the recovery
            says = (
                "the log lines could not be evaluated, so the verdict does not use them: "
                f"{type(error).__name__}: {error}"
            )
            verdict = replace(first, evidence=(*first.evidence, Evidence(text=says)))
        return with_places(verdict, self._workers, asked.nodes)
