"""Joins the evidence of many workers on one failure, so that the rules for a single machine apply to it.

Pure.

Ends of ranks are ordered by time, and the log searches become one search whose sources name worker and host.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.job.recurrence import is_environment, is_user_code, problem_key
from holdfast.core.verdict.first import first_verdict
from holdfast.core.verdict.patience import SEEN_AT_ONCE
from holdfast.core.verdict.trouble import KILL as KILLED
from holdfast.core.verdict.trouble import as_signal, is_complaint, weight_of
from holdfast.model.events import VerdictReached
from holdfast.model.failures import ErrorRecord, Failure, LauncherWord, RankExit
from holdfast.model.flight.digests import RankLife
from holdfast.model.flight.scenes import FlightScene, FoundStacks, RecordFile
from holdfast.model.matches import Match, Search, Source, Writer
from holdfast.model.nodes.workers import Looked, WorkerEvidence
from holdfast.model.samples import Hang
from holdfast.model.verdicts import Culprit, Verdict

# Categories of errors about other ranks: evidence of the rank at fault may still arrive.
NETWORK = ("nccl_network_error", "collective_timeout", "rendezvous_timeout")
ENDED_WELL = 0
ENDED_BY_OTHERS = 2  # weight of an end by a signal that launchers send to ranks without fault
WORKERS_NAMED_MAX = 8
KERNEL = "kernel.log"


def joined_failure(
    evidence: Sequence[WorkerEvidence], hang: Hang | None = None, lost: Iterable[str] = ()
) -> Failure:
    """Returns one failure made of the evidence of many workers.

    `evidence`: the latest of each worker. `hang`: found over all ranks. `lost`: names of lost nodes. Failure
    tables of launchers are ordered by the first failure in them. The command's code is the first non-zero
    one, by worker; 0 if all commands ended with 0; None if unknown.
    """
    parts = [_with_codes(one.failure) for one in sorted(evidence, key=lambda one: one.worker)]
    tables = sorted((part.elastic for part in parts if part.elastic), key=lambda table: table[0].at_s)
    return Failure(
        exits=tuple(
            sorted((one for part in parts for one in part.exits), key=lambda one: (one.at_s, one.rank))
        ),
        command_code=_code([part.command_code for part in parts]),
        command_error=next((part.command_error for part in parts if part.command_error), ""),
        errors=_by_time(one for part in parts for one in part.errors),
        tracebacks=_by_time(one for part in parts for one in part.tracebacks),
        elastic=tuple(one for table in tables for one in table),
        oom=tuple(dict.fromkeys(one for part in parts for one in part.oom)),
        hang=hang or next((part.hang for part in parts if part.hang is not None), None),
        stop_requested=any(part.stop_requested for part in parts),
        devices=tuple(dict.fromkeys(one for part in parts for one in part.devices)),
        lost_nodes=tuple(lost),
        left=tuple(sorted((one for part in parts for one in part.left), key=lambda one: one.at_s)),
        output_full=next((part.output_full for part in parts if part.output_full), ""),
        launcher_words=tuple(one for part in parts for one in part.launcher_words),
    )


def is_certain(failure: Failure, verdict: Verdict) -> bool:
    """Returns whether further evidence cannot change the verdict.

    False, for example, for an error about another rank's end while other ranks may still report errors of
    their own.
    """
    if failure.hang is not None or failure.command_error or failure.lost_nodes:
        return True
    if any(not is_complaint(error) for error in (*failure.errors, *failure.tracebacks)):
        return True
    ends: tuple[RankExit | LauncherWord, ...] = (*failure.exits, *failure.launcher_words)
    killed = any(done.code is not None and done.code < 0 and done.code != -15 for done in ends)
    return killed and verdict.category not in NETWORK


def were_only_ended(failure: Failure) -> bool:
    """Returns whether ranks ended by SIGTERM without any error, so that the reason is still to come.

    A living launcher reports the reason only after all its ranks have ended.
    """
    says = failure.errors or failure.tracebacks or failure.elastic or failure.hang or failure.stop_requested
    says = says or any(weight_of(None, one) != ENDED_BY_OTHERS for one in failure.launcher_words)
    codes = [done.code for done in failure.exits]
    return bool(codes) and not says and all(code in (-15, 143) for code in codes)


def first_of(failure: Failure) -> tuple[Verdict, bool]:
    """Returns the first verdict on all evidence of a failure, and whether further evidence cannot
    change it.
    """
    verdict = first_verdict(failure)
    return verdict, is_certain(failure, verdict)


def first_of_many(failure: Failure, evidence: Iterable[WorkerEvidence]) -> tuple[Verdict, bool]:
    """Returns the first verdict on a failure of many workers, and whether further evidence cannot change it.

    `failure`: joined from `evidence`. A launch command killed from outside explains connection errors and
    unexplained ends of other workers. It is certain once its worker has reported everything, because the ends
    of its ranks are reported a moment later than its own.
    """
    first, is_sure = first_of(failure)
    if is_sure or first.category not in (*SEEN_AT_ONCE, *NETWORK, "unknown"):
        return first, is_sure
    killed = [one for one in evidence if one.is_all and _was_killed(one.failure)]
    if not killed:
        return first, False
    verdict = first_verdict(Failure(command_code=KILLED, oom=failure.oom))
    workers = sorted(one.worker for one in killed)
    names = ", ".join(str(worker) for worker in workers[:WORKERS_NAMED_MAX])
    whose = f"worker {names}" if len(workers) == 1 else f"workers {names}"
    more = " and others" if len(workers) > WORKERS_NAMED_MAX else ""
    others = () if first.first_error == verdict.first_error else first.evidence
    return replace(
        verdict,
        title=verdict.title.replace("the command", f"the command of {whose}{more}", 1),
        culprits=tuple(Culprit(worker=worker) for worker in workers),
        evidence=(*verdict.evidence, *others),
    ), True


def _was_killed(failure: Failure) -> bool:
    """Returns whether the launch command was killed from outside before one of its ranks had an error of its
    own.
    """
    return as_signal(failure.command_code) == KILLED and not (failure.errors or failure.tracebacks)


def answer(verdict: Verdict, incident: int, at_s: float) -> VerdictReached:
    """Returns the event that answers the order Diagnose."""
    return VerdictReached(
        at_s=at_s,
        incident=incident,
        verdict=verdict,
        problem=problem_key(verdict),
        user_code=is_user_code(verdict),
        environment=is_environment(verdict),
    )


def joined_search(evidence: Sequence[WorkerEvidence], nodes: Mapping[int, str]) -> Search:
    """Returns one log search made of those of many workers.

    Sources are named by their path in the job's folder ("attempt-001/worker-2/rank-16.log"). `nodes`: node by
    worker.
    """
    sources: list[Source] = []
    matches: list[Match] = []
    for one in sorted(evidence, key=lambda one: one.worker):
        base, host = len(sources), nodes.get(one.worker)
        sources += [_source(source, one, host) for source in one.search.sources]
        matches += [
            replace(
                match,
                source=base + match.source,
                writer=_writer(match.writer, one.worker, host, is_kernel=False),
            )
            for match in one.search.matches
        ]
    return Search(
        sources=tuple(sources),
        matches=tuple(matches),
        skipped=tuple(skipped for one in evidence for skipped in one.search.skipped),
        bytes_read=sum(one.search.bytes_read for one in evidence),
    )


def joined_scene(looks: Sequence[Looked], world_size: int | None) -> tuple[FlightScene, dict[int, RankLife]]:
    """Returns flight records and stacks of the ranks of all workers, and the state of each rank, by rank."""
    worker = {one.rank: look.worker for look in looks for one in look.digests}
    digests = {one.rank: one for look in looks for one in look.digests}
    stacks = {one.rank: one for look in looks for one in look.stacks}
    scene = FlightScene(
        usual_bytes=frozenset(size for look in looks for size in look.usual_bytes),
        world_size=world_size,
        digests=tuple(digests[rank] for rank in sorted(digests)),
        records=tuple(
            RecordFile(rank, f"worker-{worker[rank]}/rank-{rank}.flight.pickle") for rank in sorted(digests)
        ),
        stacks=tuple(FoundStacks(f"rank-{rank}.py-spy.txt", stacks[rank]) for rank in sorted(stacks)),
    )
    return scene, {rank: life for look in looks for rank, life in look.lives.items()}


def with_places(verdict: Verdict, workers: Mapping[int, int], nodes: Mapping[int, str]) -> Verdict:
    """Returns the verdict with the worker and the host of each culprit rank.

    `workers`: by rank; `nodes`: by worker.
    """
    return replace(verdict, culprits=tuple(_placed(one, workers, nodes) for one in verdict.culprits))


def _placed(one: Culprit, workers: Mapping[int, int], nodes: Mapping[int, str]) -> Culprit:
    worker = one.worker
    if one.rank is not None and one.rank in workers:
        worker = workers[one.rank]
    host = nodes.get(worker) if worker is not None else None
    if worker is None and one.host is not None:
        worker = next((number for number, node in nodes.items() if node == one.host), None)
    return replace(one, worker=worker, host=host or one.host)


def _with_codes(failure: Failure) -> Failure:
    """Returns the failure with code 0 for ranks whose code is unknown, if their launcher ended with 0.

    A launcher that ends with 0 has seen all its ranks end with 0; the joined command code no longer shows
    this.
    """
    if failure.command_code != ENDED_WELL or all(one.code is not None for one in failure.exits):
        return failure
    exits = tuple(replace(one, code=ENDED_WELL) if one.code is None else one for one in failure.exits)
    return replace(failure, exits=exits)


def _code(codes: Sequence[int | None]) -> int | None:
    bad = next((code for code in codes if code), None)
    if bad is not None:
        return bad
    return ENDED_WELL if codes and all(code == ENDED_WELL for code in codes) else None


def _by_time(errors: Iterable[ErrorRecord]) -> tuple[ErrorRecord, ...]:
    return tuple(sorted(errors, key=lambda one: (one.at_s is None, one.at_s or 0.0)))


def _source(source: Source, evidence: WorkerEvidence, host: str | None) -> Source:
    is_kernel = source.name.rpartition("/")[2] == KERNEL
    name = source.name
    if "/" not in name:
        name = f"attempt-{evidence.attempt:03d}/worker-{evidence.worker}/{name}"
    writer = _writer(source.writer, evidence.worker, host, is_kernel=is_kernel)
    return replace(source, name=name, writer=writer)


def _writer(writer: Writer, worker: int, host: str | None, *, is_kernel: bool) -> Writer:
    """Returns the writer with worker and host filled in. A kernel log belongs to a host and to no worker."""
    known = writer.worker if writer.worker is not None or is_kernel else worker
    return replace(writer, worker=known, host=writer.host or host)
