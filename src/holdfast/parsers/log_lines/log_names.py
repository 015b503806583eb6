"""Determines the writer of a log from its file name. Pure, and never raises.

    run_ab12/attempt_0/3/stderr.log              torchrun --log-dir       local rank 3
    worker-0/rank-5.log    node_rank1/rank_5     most launch scripts      worker 0 and 1, rank 5
    job-123-node-gpu07-rank16.txt                                         host gpu07, rank 16
    log.gpu-07    nccl.gpu-07.4242.log           NCCL_DEBUG_FILE with %h  host gpu-07
    ip-10-0-0-7/dmesg.txt                        a folder for each host   host ip-10-0-0-7
    atlas-b12.dmesg    syslog-atlas-b12.txt      a node's own log         host atlas-b12
    train-job-worker-1.log                       the name of a pod        host train-job-worker-1, worker 1

Only certain values are returned. A date, a size, a job's id, an array's index and a rank within tensor,
pipeline or other parallelism are no ranks; nor is the rank of a LoRA.

source: torch, distributed/elastic/multiprocessing (folders of --log-dir); NCCL, NCCL_DEBUG_FILE; Kubeflow,
pod names
"""

import re

from holdfast.late_pattern import late
from holdfast.model.matches import Writer
from holdfast.parsers.log_lines.stamps import stamp_at

PARTS_MAX = 12
PART_MAX = 255
TORCHRUN = late(
    r"(?:^|/)attempt_\d{1,5}/(?P<local>\d{1,5})/(?:std(?:out|err)\.log|error\.json)(?:\.(?:gz|zst))?$",
    re.ASCII,
)
# "tp_rank_3" and "mp_rank_00" are other kinds of ranks; "rank0-7" is several.
RANK = late(
    r"(?<![A-Za-z])(?:(?P<of>[A-Za-z]{1,20})[-_.]?)?(?<![A-Za-z])(?P<word>[Rr]ank|RANK)[-_.=]{0,2}(?P<number>\d{1,6})"
    r"(?![A-Za-z0-9]|-\d{1,4}(?![\d-]))",
    re.ASCII,
)
RANK_JOINED = late(
    r"(?<![A-Za-z])(?P<of>local|node|global|world)rank[-_.=]?(?P<number>\d{1,6})(?!\d)", re.ASCII
)
RANK_OF = {"local": "local_rank", "node": "worker", "group": "worker", "machine": "worker"}
NO_RANK = (
    "tp",
    "pp",
    "dp",
    "ep",
    "cp",
    "mp",
    "sp",
    "etp",
    "edp",
    "lora",
    "low",
    "tensor",
    "pipeline",
    "data",
    "expert",
)
LORA = late(r"(?i)lora|dora|adapter")
WORKER = late(
    r"(?<![A-Za-z])(?:(?P<of>[A-Za-z]{1,20})[-_.]?)?(?<![A-Za-z])[Ww]orker[-_.=]?(?P<number>\d{1,6})(?![A-Za-z0-9])",
    re.ASCII,
)
NODE = late(r"(?<![A-Za-z0-9-])[Nn]ode[_=](?P<number>\d{1,6})(?![A-Za-z0-9])", re.ASCII)
POD = late(
    r"(?<![A-Za-z0-9-])(?P<host>(?P<job>[a-z][a-z0-9]{0,60}(?:-[a-z0-9]{1,60}){0,12}?)-(?:worker|master|launcher|head)-\d{1,5})(?![A-Za-z0-9-])",
    re.ASCII,
)
# Names of hosts, alone or as the end of a longer name ("compute-hpc-node-73").
HOST = late(
    r"(?:ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[a-z0-9-]+)*\.internal|ip-\d{1,3}(?:-\d{1,3}){3}|(?:\d{1,3}\.){3}\d{1,3}"
    r"|nid\d{3,8}|x\d{3,5}c\d+s\d+b\d+n\d+|r\d{1,3}i\d{1,3}n\d{1,3}|[a-z]{1,4}\d{1,5}n\d{1,5}"
    r"|(?:gpunode|computenode|node|nodeai|compute|host|server|dgx|hgx|cn)-?\d{1,6}|gpu-?0\d{1,5}|gpu-\d{2,6}|gpu\d{3,6}|gpu[1-9]\d)",
    re.ASCII,
)
SIZES = late(r"gpu-?(?:16|32|64|96|128|256|512|1024|2048|4096)")
HOST_WORDS = frozenset("compute hpc cluster rack gpu cpu dgx hgx a100 h100 h200 b200 v100 mi300x".split())
# The kernel log of a node contains the node's name, of any form.
KERNEL_LOG = r"(?:dmesg|kmsg|kern(?:el)?|syslog|messages|journal(?:ctl)?)"
NAMED_HOST = r"(?P<host>[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+){0,6})"
OF_A_HOST = (
    late(rf"{NAMED_HOST}[._-]{KERNEL_LOG}(?:[._-](?:log|txt|json|out|T|gz|zst|\d{{1,8}}))*", re.ASCII),
    late(rf"{KERNEL_LOG}[._-]{NAMED_HOST}(?:[._-](?:log|txt|json|out|gz|zst))*", re.ASCII),
)
# Words for the contents of a log, not for its writer.
NOISE = frozenset(
    "job log logs out err stdout stderr output slurm train training trainer debug nccl trace run data dataloader loader"
    " pytorch torch ray dask local my the".split()
)
NOT_NAMES = NOISE | frozenset("boot old prev new part attempt run rank worker v x b a".split())
DATE = late(r"(?<!\d)(?P<year>20\d\d)(?P<s>[-_]?)(?P<month>[01]\d)(?P=s)(?P<day>[0-3]\d)(?!\d{4})", re.ASCII)


def writer_of_name(name: str) -> Writer:
    """Returns rank, local rank, worker and host from a path, by the file's own name before its folders.

    `stamp_s`: the day in the name, if any; it completes time stamps without a year.
    """
    parts = [part[:PART_MAX] for part in re.split(r"[\\/]+", name[-8192:]) if part][-PARTS_MAX:]
    found: dict[str, int | float | str] = {}
    if torchrun := TORCHRUN.search("/".join(parts)):
        found["local_rank"] = int(torchrun["local"])
    for part in reversed(parts):
        for key, value in _numbers(part).items():
            found.setdefault(key, value)
        if host := _host(part):
            found.setdefault("host", host)
        if (date := DATE.search(part)) and (
            stamp := stamp_at(f"{date['year']}-{date['month']}-{date['day']} 00:00:00", 0)
        ):
            found.setdefault("stamp_s", stamp.stamp_s or 0.0)
    return Writer(**found)  # type: ignore[arg-type]  # keys and kinds are those of Writer


def _numbers(part: str) -> dict[str, int]:
    found: dict[str, int] = {}
    is_lora = LORA.search(part) is not None
    for match in (*RANK.finditer(part), *RANK_JOINED.finditer(part)):
        of = (match["of"] or "").lower()
        if of not in NO_RANK and not is_lora:
            found.setdefault(RANK_OF.get(of, "rank"), int(match["number"]))
    for match in WORKER.finditer(part):
        if "load" not in (match["of"] or "").lower():
            found.setdefault("worker", int(match["number"]))
    if node := NODE.search(part):
        found.setdefault("worker", int(node["number"]))
    return found


def _host(part: str) -> str:
    """Returns the host in one part of a path; empty if none is certain."""
    if pod := POD.search(part):
        if all(word in NOISE for word in pod["job"].split("-")):
            return ""
        return pod["host"]
    for match in HOST.finditer(part):
        before, after = part[: match.start()], part[match.end() :]
        if not SIZES.fullmatch(match[0]) and not before[-1:].isalnum() and not after[:1].isalnum():
            return f"{_prefix(before)}{match[0]}"
    return next((host for form in OF_A_HOST if (host := _named(form.fullmatch(part)))), "")


def _named(found: re.Match[str] | None) -> str:
    """Returns a name that has a digit and a word that is not in the list of common words; else empty."""
    name = found["host"] if found else ""
    words = [word.rstrip("0123456789") for word in name.lower().split("-")]
    is_name = any(map(str.isdigit, name)) and any(word and word not in NOT_NAMES for word in words)
    return name if is_name and not DATE.search(name) else ""


def _prefix(before: str) -> str:
    """Returns the words before a host's name that belong to it: "compute-hpc-" of "slurm-12-compute-hpc-"."""
    words: list[str] = []
    for word in reversed(before.split("-")[:-1]):
        if word not in HOST_WORDS:
            break
        words.insert(0, word)
    return "".join(f"{word}-" for word in words)
