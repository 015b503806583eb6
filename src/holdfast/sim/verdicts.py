"""Converts the state of a simulated attempt to evidence, from which the real diagnosis makes its first
verdict.
"""

from collections.abc import Sequence

from holdfast.core.job.recurrence import is_environment, is_user_code, problem_key
from holdfast.core.verdict.first import first_verdict
from holdfast.model.events import VerdictReached
from holdfast.model.failures import ErrorRecord, Failure, RankExit
from holdfast.model.samples import Hang
from holdfast.sim.training import Trouble


def verdict_on(troubles: Sequence[Trouble], incident: int, now_s: float) -> VerdictReached:
    verdict = first_verdict(_failure(troubles))
    return VerdictReached(
        at_s=now_s,
        incident=incident,
        verdict=verdict,
        problem=problem_key(verdict),
        user_code=is_user_code(verdict),
        environment=is_environment(verdict),
    )


def _failure(troubles: Sequence[Trouble]) -> Failure:
    exits = tuple(trouble for trouble in troubles if trouble.code)
    hangs = tuple(trouble for trouble in troubles if not (trouble.code or trouble.device or trouble.node))
    return Failure(
        exits=tuple(
            RankExit(rank=one.rank, worker=one.worker, code=one.code, at_s=one.at_s) for one in exits
        ),
        errors=tuple(_error(one) for one in exits if one.error),
        hang=_hang(hangs) if hangs else None,
        devices=tuple(f"device {one.device}: {one.error}" for one in troubles if one.device),
        lost_nodes=tuple(one.node for one in troubles if one.node),
    )


def _error(trouble: Trouble) -> ErrorRecord:
    """Returns an error record with type and message of `RuntimeError: boom`, as the rank itself would have
    written it.
    """
    kind, _, message = trouble.error.partition(": ")
    if not kind.isidentifier():
        kind, message = "RuntimeError", trouble.error
    return ErrorRecord(
        rank=trouble.rank, worker=trouble.worker, type=kind, message=message, at_s=trouble.at_s
    )


def _hang(hangs: Sequence[Trouble]) -> Hang:
    culprits = tuple(dict.fromkeys(one.rank for one in hangs))
    why = f"rank {culprits[0]} does nothing; the others wait for it"
    return Hang(kind="quiet", since_s=hangs[0].at_s, culprits=culprits, why=why, confidence=0.9)
