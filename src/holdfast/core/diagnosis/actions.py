"""What to do about the cause that was found: the signature's word, where the rest of the log does not tell better. Pure."""

from collections.abc import Sequence

from holdfast.core.diagnosis.blame import hosts_of
from holdfast.core.diagnosis.candidates import BARE, Candidate, kind_of
from holdfast.core.diagnosis.compare.api_gaps import of_api_gap
from holdfast.core.diagnosis.training import is_raised_by_a_check
from holdfast.core.diagnosis.words.wordings import OF_PYTHON
from holdfast.late_pattern import late
from holdfast.model.matches import Match, Search
from holdfast.model.signatures import SPOKEN, TRACEBACK_START
from holdfast.model.verdicts import Culprit

NOT_FITTING = frozenset({"state-dict-error", "state-dict-keys", "parameter-name-missing"})
# Beside the weights of a model: who gives a model these gives it the whole checkpoint, not what is in it.
OF_CHECKPOINTS = late(
    r"\bUnexpected key\(s\) in state_dict: [^\n]{0,2000}?\"(?:epoch|global_step|iteration|\w{0,40}optimizer\w{0,40}|\w{0,40}state_dict)\""
)
CLIENTS_MISSING = "torch-store-clients-missing"
BARRIER_TIMEOUT = "torch-store-barrier-timeout"
CRASHED = "native-crash-report"
CUDA_ERROR = "cuda_error"
MATHS_FAILED = frozenset({"cublas-execution-failed", "cudnn-failed"})
# What a failed call says of itself, in the words and names of CUDA: whose mistake it is.
OF_A_CALL = (
    (late(r"(?i)\bno kernel image|\bkernel image is invalid|symbol not found|\bPTX\b|\bstubs?\b|library version"), "fix_env"),
    (late(r"(?i)\binvalid (?:argument|value|resource|device (?:pointer|symbol|function)|configuration|pitch|texture|context)|BAD_PARAM|context (?:is|was) destroyed|too many resources requested"), "fix_code"),
    (late(r"(?i)\billegal (?:memory access|instruction|address)|\bmisaligned address|\bunspecified launch failure|\bunknown error|hardware stack error"), "isolate_node"),
)  # fmt: skip
LIVING_BUT_ELSEWHERE = "torch-desync-not-joined"
# MPI's own functions: which MPI is used, and what it is told, is a setting of the job.
OF_MPI = late(r"\bP?MPI_[A-Z]\w+|\b(?:ompi|opal|orte|prte|pmix|PMIx|MPID\w*)_\w+|ProcessGroupMPI")
ON_A_DEVICE = frozenset({"reset_gpu", "reboot_node"})
OUT_OF_CUDA_MEMORY = "cuda-error-out-of-memory"
# Functions of torch in which a process meets its GPU for the first time: it has taken no memory there yet.
FIRST_MEETING = late(
    r"_lazy_init|set_device|current_device|current_stream|synchronize|init_process_group|barrier|convert|_?cuda|to|manual_seed(?:_all)?|get_rng_state|empty_cache|mem_get_info"
)
NPU_RUNTIME = "npu_runtime"
# What CANN says of an argument that an operator refuses, and how far below the error's head it may stand.
NPU_ARGUMENT = late(r"\bAclNN_Parameter_Error\b|\bEZ1001\b")
NPU_SUPPORTS = late(r"\bonly supports? ")
# A variable that it will not take, or operators and libraries of another release.
NPU_VARIABLE = late(
    r"\b(?:set|env\w*) \[?ASCEND_[A-Z_]+\b|\bASCEND_[A-Z]+_VISIBLE_DEVICES\b.{0,20}(?:error|invalid)"
)
NPU_PACKAGES = late(
    r"\bverify the OPP\b|\bOPP is incorrect|undefined symbol|[Vv]ersion .{0,40}(?:mismatch|not match|incompatib)"
)
DETAIL_LINES = 3
OF_DRIVERS = frozenset({"driver_mismatch", "driver_error"})  # no device is broken
# All that is told of them is that they crashed.
BARE_CRASHES = frozenset(
    {"rank-segfault-exit", "torchrun-rank-crashed", "deepspeed-rank-crashed", "called-process-crashed"}
)
DATA_ERROR = "data_error"
# A path as an example writes it, for its user to fill in: "/path/to/data", "your_data_path", "train_list_path".
NOT_FILLED_IN = late(
    r"(?i)no such file or directory: ['\"](?:[^'\"]*\b(?:path[/_-]to|your[_-]\w+)\b|(?:\w+/){0,9}(?:\w*_)?path['\"])"
)
# An option that the message itself asks to look at.
OPTION_TO_SET = late(
    r"(?i)\b(?:make sure|ensure|check|set|use|pass|specify|try|change|add)\b[^.\n]{0,60}?(?<![\w-])--[a-z][\w-]+"
)
# What a file system says of the place that it was asked for, or of how it was asked: another time it says the same.
OF_FILES = frozenset({"filesystem_error", "checkpoint_save_error"})
PLACE_IS_WRONG = late(
    r"Read-only file system|\[Errno (?:22|36|95)\]|access denied by server|wrong fs type|unknown filesystem type|bad (?:mount )?option|(?i:\bmount[^\n]{0,200}(?:protocol not supported|invalid argument))|\bmount error\((?:13|22|93|95)\)"
)
SERVER_IS_FAR = late(
    r"(?i)\bmount[^\n]{0,200}(?:timed out|no route to host|connection refused|is unreachable|cannot send after transport)|\bmount error\((?:101|110|111|112|113)\)"
)
MOUNT_LINES = 9  # of a failed mount, as the kubelet prints it
# Who counted no step to train stumbles over that, in whatever words: what is divided by, or taken first, is not there.
NO_STEPS, RAISED = "no-steps-to-train", "python_exception"
# Nobody knows why they waited: it costs little to see whether they wait again.
WAITED = frozenset({"collective_timeout", "collective_missing_rank"})


def action_for(root: Candidate, blamed: Sequence[Culprit], known: Sequence[Candidate], search: Search) -> str:
    """One of the taxonomy's actions; "unknown" where nothing can be advised."""
    said = (root.ruling.action if root.ruling else "") or root.signature.action
    usual = said or _usual_action(root.category)
    if usual == "fix_network" and (_is_one_nodes_network(blamed, known) or _is_one_peer(root, known)):
        return "isolate_node"
    if said:
        return said
    if _tells_only_that_it_failed(root):
        return "unknown"
    return _by_circumstances(root, known, search) or _of_unseen_device(root, known, usual)


def _tells_only_that_it_failed(root: Candidate) -> bool:
    """A launcher's word that something failed, or a traceback without its end: nobody said what is to be mended.

    What Python's own functions complain of is the code's mistake, whoever repeats it.
    """
    is_bare = root.role == "symptom" and root.weight <= BARE
    if root.category != RAISED or not (is_bare or root.signature.id in (SPOKEN, TRACEBACK_START)):
        return False
    return not any(OF_PYTHON.match(part) for part in root.match.text.split(": "))


def _by_circumstances(root: Candidate, known: Sequence[Candidate], search: Search) -> str:
    match = root.match
    if root.signature.id in NOT_FITTING and _had_trained(root, search):
        return "fix_code"  # it was this program that wrote what does not fit it
    if root.signature.id in NOT_FITTING and any(map(OF_CHECKPOINTS.search, (match.text, *match.record))):
        return "fix_code"
    if _came_alone(match):
        return "fix_config"  # nobody came late: nobody else was told to come
    if root.signature.id == CRASHED and any(map(OF_MPI.search, match.record)):
        return "fix_config"
    if root.signature.id in BARE_CRASHES and not _made_steps(search):
        return "fix_env"  # libraries that crash together do so when they are loaded
    if root.signature.id == OUT_OF_CUDA_MEMORY and _is_first_meeting(root, search):
        return "isolate_node"  # who has taken nothing cannot take less: others fill that GPU, or it is broken
    if root.category == DATA_ERROR and NOT_FILLED_IN.search(match.text):
        return "fix_config"  # nobody has data under that name
    if root.category == DATA_ERROR and OPTION_TO_SET.search(match.text):
        return "fix_config"  # the data may be well, and read as what they are not
    if root.category == RAISED and any(candidate.signature.id == NO_STEPS for candidate in known):
        return "fix_data"
    if root.category == RAISED and is_raised_by_a_check(match):
        return "fix_config"
    return _by_category(root, known, search)


def _by_category(root: Candidate, known: Sequence[Candidate], search: Search) -> str:
    if root.category == CUDA_ERROR:
        return _of_cuda_call(root, search)
    if root.category == NPU_RUNTIME:
        return _of_npu_call(root, known)
    if root.category in OF_FILES:
        return _of_place(root, known)
    if root.category in WAITED:
        is_alive = any(candidate.signature.id == LIVING_BUT_ELSEWHERE for candidate in known)
        return "fix_code" if is_alive else "restart"
    return of_api_gap(root)


def _of_place(root: Candidate, known: Sequence[Candidate]) -> str:
    """A place that cannot be written, or that a server refuses, was chosen so; a server that does not answer may yet.

    Kubernetes says that a mount failed, and gives what `mount` said some lines below.
    """
    first = root.match
    near = (
        candidate.match
        for candidate in (root, *known)
        if candidate.category in OF_FILES and candidate.match.source == first.source
    )
    for one in near:
        if not 0 <= one.line - first.line <= MOUNT_LINES:
            continue
        if PLACE_IS_WRONG.search(one.text):
            return "fix_config"
        if SERVER_IS_FAR.search(one.text):
            return "fix_network"
    return ""


def _came_alone(match: Match) -> bool:
    """Not one of the others met this rank. At the barrier of two, the other may have been late."""
    if match.captures.get("joined") != "1":
        return False
    if match.signature == CLIENTS_MISSING:
        return True
    return match.signature == BARRIER_TIMEOUT and match.captures.get("world") not in ("1", "2")


def _of_cuda_call(root: Candidate, search: Search) -> str:
    """Whose a failed call is, by its own words; a maths library that worked for some steps met other values or indices
    since, and one that never did does not fit its driver or device. Empty where nothing tells."""
    said = next((action for pattern, action in OF_A_CALL if pattern.search(root.match.text)), "")
    if not said and root.signature.id in MATHS_FAILED:
        return "fix_code" if _had_trained(root, search) else "fix_env"
    return said


def _of_npu_call(root: Candidate, known: Sequence[Candidate]) -> str:
    """CANN's own error says little in its first line; which argument or size it refuses stands in the next."""
    first = root.match
    for candidate in (root, *known):
        one = candidate.match
        if one.source != first.source or not 0 <= one.line - first.line <= DETAIL_LINES:
            continue
        said = " ".join((one.text, *one.record[:DETAIL_LINES]))
        if NPU_SUPPORTS.search(said) or NPU_VARIABLE.search(said):
            return "fix_config"
        if NPU_PACKAGES.search(said):
            return "fix_env"
        if NPU_ARGUMENT.search(said):
            return "fix_code"
    return ""


def _of_unseen_device(root: Candidate, known: Sequence[Candidate], usual: str) -> str:
    """Of a device's fault that only the job tells of: which device is not known, so its node is to be left out.

    Where the node's own log or tools tell of the same fault, what they say is to be done.
    """
    is_of_device = root.class_ == "hardware" and root.category not in OF_DRIVERS
    if not is_of_device or root.signature.area != "worker" or usual not in ON_A_DEVICE:
        return usual
    for candidate in known:
        if candidate.category == root.category and candidate.signature.area in ("kernel", "tool"):
            return (
                (candidate.ruling.action if candidate.ruling else "") or candidate.signature.action or usual
            )
    return "isolate_node"


def _is_first_meeting(root: Candidate, search: Search) -> bool:
    function = root.match.innermost.rpartition(" ")[2]
    return FIRST_MEETING.fullmatch(function) is not None and not _had_trained(root, search)


def _made_steps(search: Search) -> bool:
    return any(source.last_step_offset is not None for source in search.sources)


def _had_trained(root: Candidate, search: Search) -> bool:
    last_step = search.sources[root.match.source].last_step_offset
    return last_step is not None and last_step < root.match.offset


def _usual_action(category: str) -> str:
    action = kind_of(category)[1]
    return "unknown" if action.startswith("by ") else action


def _is_one_nodes_network(blamed: Sequence[Culprit], known: Sequence[Candidate]) -> bool:
    """Several ranks could not connect, all of one host, in a job of several: the network of the others works."""
    hosts = {one.host for one in blamed}
    ranks = {one.rank for one in blamed} - {None}
    return (
        len(ranks) > 1
        and len(hosts) == 1
        and None not in hosts
        and any(host not in hosts for host in hosts_of(known))
    )


def _is_one_peer(root: Candidate, known: Sequence[Candidate]) -> bool:
    """Several hosts lost one and the same peer, and no other."""
    same = [
        candidate
        for candidate in known
        if candidate.signature.id == root.signature.id and not candidate.survived
    ]
    peers = {candidate.match.captures.get("peer") for candidate in same}
    complaining = {candidate.writer.host for candidate in same} - {None}
    return len(peers) == 1 and None not in peers and len(complaining) > 1
