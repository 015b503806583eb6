"""Determines which rank the others wait for: first from samples, then from Python stacks. Pure.

It names ranks only if they clearly differ from the majority. It recognises calls that wait for other ranks,
but not process groups or sequence numbers.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.late_pattern import late
from holdfast.model.samples import Hang, RankSample, Stack

SLEEP_CHANNELS = ("hrtimer_nanosleep", "do_nanosleep")
RANKS_NAMED_MAX = 8
INNERMOST = 4  # frames searched for a wait for other ranks: barrier <- wrapper <- logger <- user

# "path:line function" of a wait for other ranks. Seen on torch 2.13, gloo: a rank of a DDP job waits in
# torch/autograd/graph.py _engine_run_backward; one in a collective, under torch/distributed/.
WAITS = late(
    r"torch/autograd/graph\.py:\d+ _engine_run_backward"
    r"|torch/distributed/\S*\.py:\d+ "
    r"|torch/nn/parallel/distributed\.py:\d+ "
    r"|torch/cuda/(__init__|streams)\.py:\d+ (synchronize|wait)"
    r"|jax/experimental/multihost_utils\.py:\d+ |jax/_src/array\.py:\d+ (_value|block_until_ready)"
    r"|holdfast_shim_mpi\.py:\d+ "  # a call of mpi4py that waits: mpi4py's own frames are C
    r"|(deepspeed/(comm|runtime/zero)|horovod|c10d|jax/_src/distributed)\S*\.py:\d+ "
)
# Also under torch/distributed/, but these modules start programs and do not wait for ranks.
LAUNCHES = late(r"torch/distributed/(run|launch|elastic|launcher)\b")
# During its import a library runs functions (decorators of torch.distributed), which wait for no rank.
IMPORTED = late(r"(site|dist)-packages/(torch|deepspeed|horovod|jax)/\S*\.py:\d+ <module>$")
# Debuggers: pdb and its relatives, debugpy (VS Code, PyCharm), remote ones.
DEBUGGERS = late(
    r"(^|/)(pdb|bdb|cmd|pydevd\w*|debugpy|remote_pdb|web_pdb|rpdb|ipdb|pudb|madbg)(/\S*)?(\.py)?:\d+ |/(debugpy|pydevd|IPython/terminal)/"
)
LIBRARIES = late(r"/(site|dist)-packages/|/holdfast/shim/|/lib(64)?/python\d|^<|^torch/")


def minority(seen: Iterable[RankSample]) -> tuple[int, ...]:
    """Returns the ranks whose process state and kernel wait channel clearly differ from the majority's; empty if
    unclear.

    The majority must wait as ranks wait for each other: a majority that sleeps, runs or has ended proves nothing.
    """
    ways = {sample.rank: (sample.state, sample.wait_channel) for sample in seen if sample.state not in "ZX?"}
    odd = _odd_ones(ways)
    usual = [way for rank, way in ways.items() if rank not in odd]
    waits = usual and usual[0][0] in "SI" and not usual[0][1].startswith(SLEEP_CHANNELS)
    return odd if waits else ()


def refine(hang: Hang, stacks: Sequence[Stack]) -> Hang:
    """Returns the hang with its culprits and description refined by stacks.

    Known wait frames decide first, so that it works with two ranks; then a clear minority, by innermost frame
    or, if all wait, by the user's own line. A stopped or blocked rank, or one that outlives the others, stays
    the culprit.
    """
    frames = {stack.rank: stack.frames for stack in stacks if stack.frames}
    if not frames:
        return hang
    if hang.kind in ("stopped", "blocked-io", "exit-hang"):
        return replace(hang, why=_why(hang, frames, hang.culprits))
    culprits = _by_stacks(frames)
    if not culprits:
        return replace(hang, why=_why(hang, frames, hang.culprits))
    agreed = set(culprits) == set(hang.culprits)
    known = {*frames, *hang.waiting, *hang.culprits}
    return replace(
        hang,
        culprits=culprits,
        waiting=tuple(sorted(known - set(culprits))),
        why=_why(hang, frames, culprits),
        confidence=max(hang.confidence, 0.95 if agreed else 0.9),
    )


def _by_stacks(frames: Mapping[int, tuple[str, ...]]) -> tuple[int, ...]:
    waiting = {rank for rank, stack in frames.items() if waits_for_others(stack)}
    others = tuple(sorted(frames.keys() - waiting))
    if waiting and others:
        return others if len(others) <= len(waiting) else ()
    if not waiting:
        return _odd_ones({rank: stack[0] for rank, stack in frames.items()})
    return _odd_ones({rank: users_frame(stack) for rank, stack in frames.items()})


def _odd_ones(ways: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Returns the ranks that differ from the most common value, if at least two and twice as many ranks share
    that value.
    """
    if not ways:
        return ()
    (usual, many), *_ = Counter(ways.values()).most_common(1)
    odd = tuple(sorted(rank for rank, way in ways.items() if way != usual))
    alike = len({ways[rank] for rank in odd}) == 1
    return odd if alike and many >= 2 * len(odd) else ()


def waits_for_others(frames: Sequence[str]) -> bool:
    """Returns whether the innermost frames of a stack wait for other ranks.

    The backward pass counts, because its hooks run the collectives.
    """
    module = next((frame for frame in frames if frame.endswith(" <module>")), "")
    if IMPORTED.search(module):
        return False
    return any(WAITS.search(frame) and not LAUNCHES.search(frame) for frame in frames[:INNERMOST])


def is_debugged(frames: Sequence[str]) -> bool:
    """Returns whether a debugger (ptrace) is attached to the process."""
    return any(DEBUGGERS.search(frame) for frame in frames)


def users_frame(frames: Sequence[str]) -> str:
    """Returns the innermost frame outside installed libraries, else the innermost one; empty
    without frames.
    """
    return next((frame for frame in frames if not LIBRARIES.search(frame)), frames[0] if frames else "")


# --- words


def _why(hang: Hang, frames: Mapping[int, tuple[str, ...]], culprits: Sequence[int]) -> str:
    """Returns a description of culprits and waiting ranks: "rank 2 sleeps at train.py:88 in load; 3 ranks
    wait for it".
    """
    seen = {sample.rank: sample for sample in hang.seen}
    parts = [
        f"rank {rank} {verb(seen.get(rank))} at {place_of(users_frame(frames[rank]))}"
        for rank in culprits[:RANKS_NAMED_MAX]
        if rank in frames
    ]
    others = [stack for rank, stack in sorted(frames.items()) if rank not in culprits]
    if others:
        (inner, users), many = Counter((stack[0], users_frame(stack)) for stack in others).most_common(1)[0]
        wait = "1 rank waits" if many == 1 else f"{many} ranks wait"
        place = inner.rpartition(" ")[2]
        for_it = " for it" if len(culprits) == 1 else ""
        parts.append(f"{wait}{for_it} in {place} ({place_of(users)})" if place else wait)
    named = any(rank in frames for rank in culprits)
    return "; ".join([*parts, hang.why] if named else [hang.why, *parts])  # the rank at fault comes first


def place_of(frame: str) -> str:
    """Returns a stack frame in short form: "train.py:88 in load" for "/data/my job/train.py:88 load"."""
    where, _, function = frame.rpartition(" ")
    file = where.replace("\\", "/").rpartition("/")[2]
    return f"{file} in {function}" if function != "<module>" else file


def does(sample: RankSample) -> str:
    """Returns in words what a rank is doing, with its kernel wait channel: "rank 2 sleeps (hrtimer_nanosleep)"."""
    channel = f" ({sample.wait_channel})" if sample.wait_channel else ""
    return f"rank {sample.rank} {verb(sample)}{channel}"


def verb(sample: RankSample | None) -> str:
    """Returns the verb for what a rank is doing: "sleeps", "runs", "waits"."""
    if sample is None:
        return "is"
    if sample.state == "S" and sample.wait_channel.startswith(SLEEP_CHANNELS):
        return "sleeps"
    return {"R": "runs", "D": "is blocked", "T": "is stopped", "t": "is traced"}.get(sample.state, "waits")


def ranks_named(ranks: Sequence[int]) -> str:
    """Returns the names of ranks: "rank 2", "ranks 0, 1, 3"; a long list is truncated."""
    named = ", ".join(str(rank) for rank in ranks[:RANKS_NAMED_MAX])
    return f"{plural(ranks, 'rank', 'ranks')} {named}" + (", ..." if len(ranks) > RANKS_NAMED_MAX else "")


def plural(ranks: Sequence[int], one: str, more: str) -> str:
    """Returns the form of a word that agrees with this number of ranks."""
    return one if len(ranks) == 1 else more
