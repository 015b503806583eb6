"""Starts ranks on this node in the Python of the training (`ranks.py`), and reads their results."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.checks.training_python import ranks as run_ranks
from holdfast.checks.training_python.run import answer_of, run_of, run_within
from holdfast.core.checks.comm.local import trouble
from holdfast.model.checks import SKIP, Finding, Scene

ERROR_CHARS_MAX = 300
_OF_A_RUN = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def asked_of_ranks(
    scene: Scene, backend: str, ranks: int, sizes: Sequence[int], *, meet_s: float, within_s: float
) -> tuple[dict[str, Any], Finding | None]:
    """Starts ranks on this node and returns their results; or, if there are none, an empty dict and a finding with
    the reason.

    `sizes`: sizes of all-reduce messages in bytes. `meet_s`: time limit of the rendezvous. `within_s`: time limit of
    everything, including the import of torch.
    """
    run, answer = run_of(scene), answer_of(scene)
    if answer.said is None:
        return {}, Finding(status=SKIP, why=answer.why_not)
    if not answer.said["torch"].get("found"):
        return {}, Finding(status=SKIP, why="torch is not installed in the Python of the training")
    question = {"ranks": ranks, "backend": backend, "sizes": sizes, "timeout_s": meet_s}
    words = [*run.interpreter.words, run_ranks.__file__, msgspec.json.encode(question).decode()]
    ran = run_within(words, _plain(run.prepared.env), "/", within_s)
    said = _said(ran.out)
    errors = next((line for line in reversed(ran.errors.splitlines()) if line.strip()), "")
    finding = trouble(said, backend, ran.code is not None, within_s, errors[:ERROR_CHARS_MAX])
    if finding is not None:
        return {}, finding
    return next(one for one in said if one.get("stage") == "done"), None


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of the run without variables that make a process a certain rank of it."""
    kept = {
        name: value
        for name, value in env.items()
        if name not in _OF_A_RUN and not name.startswith(("TORCHELASTIC_", "PET_"))
    }
    return {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", **kept}


def _said(out: bytes) -> list[dict[str, Any]]:
    mark = run_ranks.MARK.encode()
    found: list[dict[str, Any]] = []
    for line in out.splitlines():
        if line.startswith(mark):
            try:
                found.append(msgspec.json.decode(line[len(mark) :], type=dict[str, Any]))
            except msgspec.MsgspecError:
                continue  # torn by the end of the process
    return found
