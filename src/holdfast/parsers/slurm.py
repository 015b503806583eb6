"""Parses the output of Slurm's commands about nodes, jobs and steps. Pure.

Three forms, by version: 22.05 has JSON with plain strings (and always shows every job and node of the
cluster); from 23.11 on values are lists (`"job_state": ["RUNNING"]`) and structs (`{"set": true, "infinite":
false, "number": 1}`), and scontrol supports JSON too. Every version has `scontrol --oneliner`:

    NodeName=n1 Arch=x86_64 … State=ALLOCATED+DRAIN+NOT_RESPONDING … Reason=bad gpu [root@2026-11-22T07:31:41]
    JobId=7 JobName=train … JobState=RUNNING Reason=None … Restarts=1 … NodeList=n[1-2] BatchHost=n1 …

and `-h -o`, whose node states end with symbols: `idle*` does not answer.

source: sinfo(1) NODE STATE CODES, squeue(1) JOB STATE CODES, scontrol(1); data_parser v0.0.42 of Slurm 24.11
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.slurm_names import BadNodeList, expanded

REASON_MAX = 300
# Symbols after a node's state in `sinfo -o %T`; * and $ may be combined with others.
_LETTERS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
# Words of `sinfo -o %T` that combine a state and flags.
_COMPOUND = {
    "draining": ("ALLOCATED", "DRAIN"),
    "drained": ("IDLE", "DRAIN"),
    "drng": ("ALLOCATED", "DRAIN"),
    "drain": ("IDLE", "DRAIN"),
    "failing": ("ALLOCATED", "FAIL"),
    "failg": ("ALLOCATED", "FAIL"),
    "fail": ("IDLE", "FAIL"),
    "completing": ("IDLE", "COMPLETING"),
    "comp": ("IDLE", "COMPLETING"),
    "maint": ("IDLE", "MAINTENANCE"),
    "reserved": ("IDLE", "RESERVED"),
    "resv": ("IDLE", "RESERVED"),
    "planned": ("IDLE", "PLANNED"),
    "plnd": ("IDLE", "PLANNED"),
    "reboot": ("IDLE", "REBOOT_REQUESTED"),
    "power_down": ("IDLE", "POWER_DOWN"),
    "powering_down": ("IDLE", "POWERING_DOWN"),
    "pow_dn": ("IDLE", "POWERING_DOWN"),
    "powered_down": ("IDLE", "POWERED_DOWN"),
    "powering_up": ("IDLE", "POWERING_UP"),
    "pow_up": ("IDLE", "POWERING_UP"),
}
_SHORT = {"alloc": "ALLOCATED", "mix": "MIXED", "err": "ERROR", "unk": "UNKNOWN", "futr": "FUTURE"}
_FIELD = late(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:()]*)=")
_OVER = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
)


class NotSlurm(ValueError):
    """Raised for text that is no output of Slurm; the message shows its beginning."""


class SlurmNode(Struct, frozen=True, kw_only=True):
    """A node of a Slurm cluster.

    `state`: IDLE, ALLOCATED, MIXED, DOWN, ERROR, UNKNOWN, FUTURE; `flags`: DRAIN, ….

    `address`, `port`: of its slurmd; empty and 0 if unknown.
    """

    name: str
    state: str
    flags: frozenset[str] = frozenset()
    reason: str = ""
    address: str = ""
    port: int = 0

    @property
    def is_down(self) -> bool:
        """Returns whether Slurm runs nothing on the node, because Slurm or an administrator marked it down."""
        return self.state in ("DOWN", "ERROR") or bool({"POWERED_DOWN", "POWERING_DOWN"} & self.flags)

    @property
    def is_set_aside(self) -> bool:
        """Returns whether Slurm starts nothing new on the node: it is down, drained or failing."""
        return self.is_down or bool({"DRAIN", "FAIL"} & self.flags)

    @property
    def answers(self) -> bool:
        """Returns whether slurmctld receives responses of the node's slurmd. False implies nothing about running
        processes.
        """
        return "NOT_RESPONDING" not in self.flags and self.state != "UNKNOWN"


class SlurmJob(Struct, frozen=True, kw_only=True):
    """A Slurm job. `state`: PENDING, RUNNING, …; `completing`: its processes are being ended.

    `nodes`: allocated ones; `restarts`: number of requeues, counted when the requeue happens; `requeue`:
    requeues are allowed. `preempted`: it is being preempted by another job. `tasks_per_node`: required on
    each; 0 if unknown. Times in seconds since the epoch.
    """

    job: str
    state: str
    completing: bool = False
    reason: str = ""
    nodes: tuple[str, ...] = ()
    batch_host: str = ""
    restarts: int | None = None
    requeue: bool | None = None
    excluded: tuple[str, ...] = ()
    end_s: float | None = None
    exit_code: int | None = None
    preempted: bool = False
    tasks_per_node: int = 0

    @property
    def is_over(self) -> bool:
        """Returns whether the job has ended and will not run again by itself."""
        return self.state in _OVER


class SlurmStep(Struct, frozen=True, kw_only=True):
    """A step of a Slurm job, as `squeue --steps` lists it."""

    step: str
    name: str
    nodes: tuple[str, ...]


# Nodes --------------------------------------------------------------------------------------------------------


def nodes_of_json(text: bytes) -> tuple[SlurmNode, ...]:
    """Parses nodes from `sinfo --json` of 22.05 and 24.11, and from `scontrol show nodes --json`.

    raises: NotSlurm
    """
    document = _document(text)
    if isinstance(document.get("nodes"), list):
        return tuple(
            _json_node(one) for one in document["nodes"] if isinstance(one, dict) and one.get("name")
        )
    if isinstance(document.get("sinfo"), list):
        return tuple(node for one in document["sinfo"] if isinstance(one, dict) for node in _json_rows(one))
    raise NotSlurm(f"no nodes in {text[:80]!r}")


def _json_node(one: Mapping[str, Any]) -> SlurmNode:
    words = _words(one.get("state")) + _words(one.get("state_flags"))
    return SlurmNode(
        name=str(one["name"]),
        state=words[0].upper() if words else "UNKNOWN",
        flags=frozenset(word.upper() for word in words[1:]),
        reason=_reason(one.get("reason")),
        address=str(one.get("address") or ""),
        port=_number(one.get("port")) or 0,
    )


def _json_rows(one: Mapping[str, Any]) -> Iterator[SlurmNode]:
    """Yields the nodes of a row of `sinfo --json` of 24.11, which groups nodes of one kind."""
    node, listed = one.get("node") or {}, one.get("nodes") or {}
    words = [word.upper() for word in _words(node.get("state"))] or ["UNKNOWN"]
    said = one.get("reason")
    reason = said.get("description") if isinstance(said, dict) else said
    for name in _words(listed.get("nodes")):
        yield SlurmNode(
            name=name,
            state=words[0],
            flags=frozenset(words[1:]),
            reason=_reason(reason),
            port=_number(one.get("port")) or 0,
        )


def nodes_of_lines(text: str) -> tuple[SlurmNode, ...]:
    """Parses `scontrol --oneliner show node …`; lines of another form are skipped."""
    return tuple(_line_node(fields) for fields in _rows(text, "NodeName"))


def _line_node(fields: Mapping[str, str]) -> SlurmNode:
    state, *flags = re.sub(
        r"[^A-Z_+]", "", fields.get("State", "UNKNOWN").upper().replace("*", "+NOT_RESPONDING")
    ).split("+")
    reason = re.sub(r" \[[^\[\]]*@[^\[\]]*\]$", "", fields.get("Reason", ""))
    port = fields.get("Port", "")
    return SlurmNode(
        name=fields["NodeName"],
        state=state,
        flags=frozenset(flag for flag in flags if flag),
        reason=_reason(reason),
        address=fields.get("NodeAddr", ""),
        port=int(port) if port.isdigit() else 0,
    )


def nodes_of_columns(text: str) -> tuple[SlurmNode, ...]:
    """Parses `sinfo -h -N -o '%N|%T|%E'`, one node per line; a node in two partitions is returned once."""
    found: dict[str, SlurmNode] = {}
    for line in text.splitlines():
        name, state, *reason = line.strip().split("|", 2) if line.count("|") else ("", "")
        if name:
            base, flags = _state_of_word(state)
            said = _reason(reason[0] if reason else "")
            found[name] = SlurmNode(name=name, state=base, flags=flags, reason=said)
    return tuple(found.values())


def _state_of_word(word: str) -> tuple[str, frozenset[str]]:
    flags = frozenset(_LETTERS[letter] for letter in word if letter in _LETTERS)
    plain = "".join(letter for letter in word if letter not in _LETTERS).lower()
    base, *more = plain.split("+")
    state, *implied = _COMPOUND.get(base, (_SHORT.get(base, base.upper() or "UNKNOWN"),))
    return state, flags | frozenset(implied) | frozenset(one.upper() for one in more)


# Jobs ---------------------------------------------------------------------------------------------------------


def jobs_of_json(text: bytes) -> tuple[SlurmJob, ...]:
    """Parses jobs from `squeue --json` of 22.05 and 24.11, and `scontrol show job ID --json` of 24.11.

    raises: NotSlurm
    """
    document = _document(text)
    if not isinstance(document.get("jobs"), list):
        raise NotSlurm(f"no jobs in {text[:80]!r}")
    return tuple(_json_job(one) for one in document["jobs"] if isinstance(one, dict) and "job_id" in one)


def _json_job(one: Mapping[str, Any]) -> SlurmJob:
    words = [word.upper() for word in _words(one.get("job_state"))] or ["UNKNOWN"]
    bases = [word for word in words if word != "COMPLETING"]
    requeue = one.get("requeue")
    end = _number(one.get("end_time"))
    return SlurmJob(
        job=str(_number(one["job_id"])),
        state=bases[0] if bases else "COMPLETING",
        completing="COMPLETING" in words,
        reason=str(one.get("state_reason") or ""),
        nodes=_nodes(str(one.get("nodes") or "")),
        batch_host=str(one.get("batch_host") or ""),
        restarts=_number(one.get("restart_cnt")),
        requeue=requeue if isinstance(requeue, bool) else None,
        excluded=_nodes(str(one.get("excluded_nodes") or "")),
        end_s=float(end) if end else None,
        exit_code=_exit_code(one.get("exit_code")),
        preempted="PREEMPTED" in words or bool(_number(one.get("preempt_time"))),
        tasks_per_node=_number(one.get("tasks_per_node")) or 0,
    )


def _exit_code(value: Any) -> int | None:
    """Returns an exit code, -N for signal N.

    22.05 has a wait status, 24.11 `{"return_code": {…}, "signal": {"id": {…}}}`.
    """
    if isinstance(value, dict) and "return_code" in value:
        killed = _number((value.get("signal") or {}).get("id"))
        return -killed if killed else _number(value["return_code"])
    status = _number(value)
    if status is None:
        return None
    return -(status & 0x7F) if status & 0x7F else status >> 8


def jobs_of_lines(text: str) -> tuple[SlurmJob, ...]:
    """Parses `scontrol --oneliner show job …`.

    Times are parsed under SLURM_TIME_FORMAT=%s only, because they have no zone otherwise.
    """
    return tuple(_line_job(fields) for fields in _rows(text, "JobId"))


def _line_job(fields: Mapping[str, str]) -> SlurmJob:
    state = fields.get("JobState", "UNKNOWN")
    restarts, requeue = fields.get("Restarts", ""), fields.get("Requeue", "")
    code, _, killed = fields.get("ExitCode", "").partition(":")
    known = code.isdigit() and killed.isdigit()
    end, each = fields.get("EndTime", ""), fields.get("NtasksPerN:B:S:C", "").partition(":")[0]
    return SlurmJob(
        job=fields["JobId"],
        state=state,
        completing=state == "COMPLETING",
        reason=fields.get("Reason", ""),
        nodes=_nodes(fields.get("NodeList", "")),
        batch_host=fields.get("BatchHost", ""),
        restarts=int(restarts) if restarts.isdigit() else None,
        requeue=requeue == "1" if requeue in ("0", "1") else None,
        excluded=_nodes(fields.get("ExcNodeList", "")),
        end_s=float(end) if end.isdigit() else None,
        exit_code=(-int(killed) or int(code)) if known else None,
        preempted=state == "PREEMPTED" or fields.get("PreemptTime", "None") not in ("None", "Unknown", "N/A"),
        tasks_per_node=int(each) if each.isdigit() else 0,
    )


def steps_of_columns(text: str) -> tuple[SlurmStep, ...]:
    """Parses the steps in `squeue -h -s -j ID -o '%i|%j|%N'`, with lines such as "7.0|holdfast-agent|n3"."""
    rows = (line.strip().split("|") for line in text.splitlines())
    return tuple(SlurmStep(step=row[0], name=row[1], nodes=_nodes(row[2])) for row in rows if len(row) == 3)


# Settings -----------------------------------------------------------------------------------------------------


def settings_of(text: str) -> dict[str, str]:
    """Parses `scontrol show config`: {"KillWait": "30 sec", "SLURM_VERSION": "22.05.8", …}."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def seconds_of(value: str, default: float) -> float:
    """Parses a duration in Slurm's configuration, in seconds: "30 sec", "5 min" or a number; else returns
    `default`.
    """
    found = re.fullmatch(r"(\d{1,9})(?:\s*(sec|min)\w*)?", value.strip())
    return default if found is None else float(found[1]) * (60.0 if found[2] == "min" else 1.0)


def version_of(text: str) -> tuple[int, int]:
    """Parses a version of Slurm: (22, 5) for "slurm-wlm 22.05.8"; (0, 0) if unknown."""
    found = re.search(r"(\d{1,3})\.(\d{1,3})(?:\.|\b)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


# Inside -------------------------------------------------------------------------------------------------------


def _document(text: bytes) -> dict[str, Any]:
    """Returns the JSON object in the text; some versions print warnings before it."""
    start = text.find(b"{")
    try:
        document = msgspec.json.decode(text[max(start, 0) :])
    except msgspec.DecodeError as error:
        raise NotSlurm(f"not JSON: {text[:80]!r}") from error
    if not isinstance(document, dict):
        raise NotSlurm(f"not a JSON object: {text[:80]!r}")
    return document


def _rows(text: str, key: str) -> Iterator[dict[str, str]]:
    """Yields the fields of each line that begins with `key`.

    Values may contain blanks; names of fields do not.
    """
    for line in text.splitlines():
        if not line.startswith(f"{key}="):
            continue
        marks = list(_FIELD.finditer(line))
        ends = [mark.start() for mark in marks[1:]] + [len(line)]
        fields: dict[str, str] = {}
        for mark, end in zip(marks, ends, strict=True):
            fields.setdefault(mark[1], line[mark.end() : end].strip())
        yield fields


def _words(value: Any) -> list[str]:
    """Returns a list of strings, from such a list or from a string with "+"."""
    if isinstance(value, str):
        return [word for word in value.split("+") if word]
    return [str(one) for one in value] if isinstance(value, Sequence) else []


def _number(value: Any) -> int | None:
    """Returns an integer, from a number or 24.11's `{"set": true, "infinite": false, "number": 7}`; None if
    not set.
    """
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return expanded(text)
    except BadNodeList:
        return ()


def _reason(value: object) -> str:
    said = str(value or "")
    return "" if said in ("none", "None", "(null)") else said[:REASON_MAX]
