"""Compares the start conditions of two runs: versions, environment, settings, data, nodes. Pure.

Values that differ at each start, such as ports, process ids, times and output folders, are ignored.
"""

from collections.abc import Sequence

from holdfast.late_pattern import late
from holdfast.model.runs.comparison import Fact, FactDifference, FactKind

DIFFERENCES_MAX = 200
ORDER: tuple[FactKind, ...] = ("seed", "data", "version", "setting", "environment", "command", "node")
# Names of values that differ between two starts of the same training.
OF_ONE_START = late(
    r"(?i)(?:^|[_. -])(?:pid|ppid|port|run_?id|job_?id|jobid|job_?name|job|time(?:stamp)?|date|start(?:ed)?(?:_at)?|uuid|socket"
    r"|rdzv_id|rdzv_endpoint|master_addr|log_?dir|log_?folder|output_?dir|out_?dir|save|save_?dir|tensorboard(?:_dir)?"
    r"|wandb\w*|exp_?name|run_?name|experiment_?name|name|hostname|secret|token|password|tmpdir|oldpwd|pwd|shlvl)(?:$|[_. -])"
)
OF_THIS_START = late(
    r"(?i)^(?:HOLDFAST_|SLURM_(?!CPU|MEM|NTASKS|NNODES)|PET_RDZV|PET_MASTER_PORT|TORCHELASTIC_)"
)
SEED = late(r"(?i)(?:^|[_. -])(?:random_?)?seed(?:$|[_. -])")
DATA = late(
    r"(?i)(?:^|[_. -])(?:data|dataset|train_?files?|corpus|shuffle|sampler|split|data_?(?:path|dir|order)|tokenizer)(?:$|[_. -])"
)


def differences(first: Sequence[Fact], other: Sequence[Fact]) -> tuple[FactDifference, ...]:
    """Returns the start conditions whose values differ, those most likely to change numerical results first.

    A name that only one run has counts only if the other run has some value of its kind from the same type of
    source.
    """
    ours, theirs = _by_name(first), _by_name(other)
    kinds = _kinds(first) & _kinds(other)
    recorded = {(fact.kind, fact.name): fact.is_recorded for fact in (*first, *other)}
    found = []
    for key in dict.fromkeys((*ours, *theirs)):
        one, two = ours.get(key), theirs.get(key)
        if (
            one == two
            or ((one is None or two is None) and (key[0], recorded[key]) not in kinds)
            or is_of_one_start(key[1])
        ):
            continue
        found.append(FactDifference(kind=explains(*key), name=key[1], first=one, other=two))
    return tuple(sorted(found, key=lambda fact: (ORDER.index(fact.kind), fact.name))[:DIFFERENCES_MAX])


def is_of_one_start(name: str) -> bool:
    """Returns whether the value of this name differs at each start of the same training, such as a port."""
    return OF_ONE_START.search(name) is not None or OF_THIS_START.search(name) is not None


def explains(kind: FactKind, name: str) -> FactKind:
    """Returns the kind under which a setting is shown: seeds and data are separated from other settings."""
    if kind in ("setting", "environment"):
        if SEED.search(name):
            return "seed"
        if DATA.search(name):
            return "data"
    return kind


def _by_name(facts: Sequence[Fact]) -> dict[tuple[FactKind, str], str]:
    return {(fact.kind, fact.name): fact.value for fact in facts}


def _kinds(facts: Sequence[Fact]) -> set[tuple[FactKind, bool]]:
    return {(fact.kind, fact.is_recorded) for fact in facts}
