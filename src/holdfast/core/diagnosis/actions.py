"""Chooses the recommended action for a root cause. Pure.

The action is the one of the matched signature, unless other log lines show that another action is better.
Tags, wordings and lookup tables are in signatures/rules/actions.toml.
"""

from collections.abc import Iterable, Sequence

from holdfast.core.diagnosis.blame import hosts_of
from holdfast.core.diagnosis.candidates import BARE, Candidate, kind_of
from holdfast.core.diagnosis.compare.api_gaps import of_api_gap
from holdfast.core.diagnosis.training import is_raised_by_a_check
from holdfast.model.matches import Search
from holdfast.model.rules import Reading
from holdfast.model.signatures import SPOKEN, TRACEBACK_START
from holdfast.model.verdicts import Culprit

ON_A_DEVICE = frozenset({"reset_gpu", "reboot_node"})  # actions that need to know which device
DETAIL_LINES = 3  # below an error's first line; within these it says what was wrong
MOUNT_LINES = 9  # that a platform prints about a failed mount


def action_for(root: Candidate, blamed: Sequence[Culprit], seen: Sequence[Candidate], search: Search) -> str:
    """Returns the recommended action, by its name in the taxonomy; "unknown" if none can be recommended."""
    said = (root.ruling.action if root.ruling else "") or root.signature.action
    usual = said or _usual_action(root.category)
    if usual == "fix_network" and (_is_one_nodes_network(blamed, seen) or _is_one_peer(root, seen)):
        return "isolate_node"
    if said:
        return said
    if _tells_only_that_it_failed(root):
        return "unknown"
    return _by_circumstances(root, seen, search) or _of_unseen_device(root, seen, usual)


def _tells_only_that_it_failed(root: Candidate) -> bool:
    """Returns whether the root cause is only a launcher's failure report, or a traceback whose end is
    missing.

    An error raised by Python's built-in functions counts as a mistake of the code, even if another program
    quotes it.
    """
    is_bare = root.role == "symptom" and root.weight <= BARE
    if not root.has("raised-in-code") or not (is_bare or root.signature.id in (SPOKEN, TRACEBACK_START)):
        return False
    parts = root.match.text.split(": ")
    return not any(root.known.says("python-about-arguments", part) for part in parts)


def _by_circumstances(root: Candidate, seen: Sequence[Candidate], search: Search) -> str:
    if root.has("weights-do-not-fit") and _is_mistake_of_code(root, search):
        return "fix_code"
    if _came_alone(root):
        return "fix_config"  # no other rank was late: none was started
    if root.has("peer-left") and any(one.role == "end-ok" for one in seen):
        return "fix_code"  # the peer had finished: the ranks do not communicate equally often
    if root.has("native-crash-report") and _was_in_mpi(root):
        return "fix_config"
    if root.has("bare-crash") and not _made_steps(search):
        return "fix_env"  # libraries that do not fit together crash when they are loaded
    if root.has("device-memory-refused") and _is_first_meeting(root, search):
        return "isolate_node"  # the process holds no memory yet: others fill that GPU, or it is broken
    if root.has("data-wrong") and (root.says("path-of-example") or root.says("option-to-look-at")):
        return "fix_config"  # the path or an option is wrong, not the data
    if root.has("raised-in-code") and any(one.has("no-steps-counted") for one in seen):
        return "fix_data"  # the code divides by the number of steps, or takes the first
    if root.has("raised-in-code") and is_raised_by_a_check(root.match, root.known):
        return "fix_config"
    return _by_category(root, seen, search)


def _by_category(root: Candidate, seen: Sequence[Candidate], search: Search) -> str:
    known = root.known
    if root.has("device-call-failed"):
        return _of_device_call(root, search)
    if root.has("npu-call-failed"):
        texts = (
            " ".join((one.match.text, *one.match.record[:DETAIL_LINES]))
            for one in (root, *seen)
            if _is_near(one, root, DETAIL_LINES)
        )
        return _first_action(known.read("npu-call", text) for text in texts)
    if root.has("file-system-refused"):
        near = (
            one
            for one in (root, *seen)
            if one.has("file-system-refused") and _is_near(one, root, MOUNT_LINES)
        )
        return _first_action(known.read("file-system-answer", one.match.text) for one in near)
    if root.has("waited-for-unknown-reason"):
        return "fix_code" if any(one.has("living-rank-elsewhere") for one in seen) else "restart"
    return of_api_gap(root)


def _is_near(one: Candidate, root: Candidate, lines: int) -> bool:
    """Returns whether a candidate's line is the root cause's line or at most `lines` lines below it in the
    same log.
    """
    return one.match.source == root.match.source and 0 <= one.match.line - root.match.line <= lines


def _first_action(rows: Iterable[Reading | None]) -> str:
    return next((row.action for row in rows if row), "")


def _is_mistake_of_code(root: Candidate, search: Search) -> bool:
    """Returns whether a checkpoint error is a mistake of the code.

    It is if the job itself wrote the checkpoint that does not fit, or if the code passes the whole checkpoint
    to the model instead of the state dict.
    """
    texts = (root.match.text, *root.match.record)
    is_whole_checkpoint = any(root.known.says("whole-checkpoint-given", text) for text in texts)
    return is_whole_checkpoint or _had_trained(root, search)


def _was_in_mpi(root: Candidate) -> bool:
    return any(root.known.says("function-of-mpi", line) for line in root.match.record)


def _came_alone(root: Candidate) -> bool:
    """Returns whether a rank waited at the rendezvous and no other rank joined.

    With two ranks at a barrier this is False, because the other rank may only have been late.
    """
    captures = root.match.captures
    if captures.get("joined") != "1" or not root.has("clients-missing"):
        return False
    return not root.has("barrier-at-store") or captures.get("world") not in ("1", "2")


def _of_device_call(root: Candidate, search: Search) -> str:
    """Returns the action for a failed GPU call, judged by its error text; "" if the text does not decide.

    A maths library that worked for some steps received bad values or indices; one that never worked does not
    fit the driver.
    """
    row = root.known.read("device-call", root.match.text)
    if row is None and root.has("maths-library-failed"):
        return "fix_code" if _had_trained(root, search) else "fix_env"
    return row.action if row else ""


def _of_unseen_device(root: Candidate, seen: Sequence[Candidate], usual: str) -> str:
    """Returns "isolate_node" if only the job's log reports a device fault, because the device is then
    unknown.

    If the node's kernel log or tools report the same fault, the action is that of their signature.
    """
    is_of_device = root.class_ == "hardware" and not root.has("driver-fault")
    if not is_of_device or root.signature.area != "worker" or usual not in ON_A_DEVICE:
        return usual
    for candidate in seen:
        if candidate.category == root.category and candidate.signature.area in ("kernel", "tool"):
            return (
                (candidate.ruling.action if candidate.ruling else "") or candidate.signature.action or usual
            )
    return "isolate_node"


def _is_first_meeting(root: Candidate, search: Search) -> bool:
    function = root.match.innermost.rpartition(" ")[2]
    return root.known.says("first-use-of-device", function) and not _had_trained(root, search)


def _made_steps(search: Search) -> bool:
    return any(source.last_step_offset is not None for source in search.sources)


def _had_trained(root: Candidate, search: Search) -> bool:
    last_step = search.sources[root.match.source].last_step_offset
    return last_step is not None and last_step < root.match.offset


def _usual_action(category: str) -> str:
    action = kind_of(category)[1]
    return "unknown" if action.startswith("by ") else action


def _is_one_nodes_network(blamed: Sequence[Culprit], seen: Sequence[Candidate]) -> bool:
    """Returns whether several ranks failed to connect, all on one host, while the job has other hosts."""
    hosts = {one.host for one in blamed}
    ranks = {one.rank for one in blamed} - {None}
    return (
        len(ranks) > 1
        and len(hosts) == 1
        and None not in hosts
        and any(host not in hosts for host in hosts_of(seen))
    )


def _is_one_peer(root: Candidate, seen: Sequence[Candidate]) -> bool:
    """Returns whether several hosts lost the connection to the same peer and to no other."""
    same = [
        candidate
        for candidate in seen
        if candidate.signature.id == root.signature.id and not candidate.survived
    ]
    peers = {candidate.match.captures.get("peer") for candidate in same}
    complaining = {candidate.writer.host for candidate in same} - {None}
    return len(peers) == 1 and None not in peers and len(complaining) > 1
