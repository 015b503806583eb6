"""Formats check results as output lines and exit codes of other programs' plugins.

nagios: Nagios plugins, `STATUS - text | performance data`; source: Monitoring Plugins Development Guidelines.
slurm-healthcheck: Slurm's HealthCheckProgram, prolog and epilog: 0 or 1, and a line `ERROR ...` that can be a
drain reason. npd: a custom plugin of node-problem-detector, exit codes 0, 1, 2 and a short line; source: its
custom_plugin_monitor.md.
"""

from collections.abc import Sequence

from holdfast.core.checks.judged import NodeFinding, sentence, status_of, troubles
from holdfast.core.plurals import counted
from holdfast.model.checks import FAIL, PASS, SKIP, STATUSES, WARN, NodeChecks

EXITS = {
    "nagios": {PASS: 0, WARN: 1, FAIL: 2, SKIP: 3},
    "slurm-healthcheck": {PASS: 0, WARN: 0, FAIL: 1, SKIP: 0},
    "npd": {PASS: 0, WARN: 0, FAIL: 1, SKIP: 2},
}
_NAGIOS = {PASS: "OK", WARN: "WARNING", FAIL: "CRITICAL", SKIP: "UNKNOWN"}
NPD_CHARS_MAX = 80  # max_output_length, by default
REASON_CHARS_MAX = 200
FINDINGS_MAX = 3


def exported(name: str, nodes: Sequence[NodeChecks]) -> tuple[int, str]:
    """Returns exit code and output text in the format `name`, a key of EXITS."""
    status = status_of(nodes)
    findings = sorted(troubles(nodes), key=lambda one: -STATUSES.index(one.finding.status))
    text = {"nagios": _nagios, "slurm-healthcheck": _slurm, "npd": _npd}[name](status, findings, nodes)
    return EXITS[name][status], text


def _nagios(status: str, findings: Sequence[NodeFinding], nodes: Sequence[NodeChecks]) -> str:
    counts = [
        f"{kind}={sum(outcome.status == kind for node in nodes for outcome in node.outcomes)}"
        for kind in (PASS, WARN, FAIL, SKIP)
    ]
    seconds = max((node.seconds for node in nodes), default=0.0)
    said = (
        _few(findings)
        or f"{counted(sum(outcome.status == PASS for node in nodes for outcome in node.outcomes), 'check')} passed"
    )
    return f"HOLDFAST {_NAGIOS[status]} - {said.replace('|', '/')} | {' '.join(counts)} time={seconds:.2f}s"


def _slurm(status: str, findings: Sequence[NodeFinding], nodes: Sequence[NodeChecks]) -> str:
    failed = [one for one in findings if one.finding.status == FAIL]
    if failed:
        return f"ERROR holdfast: {_few(failed)}"[:REASON_CHARS_MAX]
    return f"OK holdfast: {_few(findings)}"[:REASON_CHARS_MAX] if findings else "OK holdfast"


def _npd(status: str, findings: Sequence[NodeFinding], nodes: Sequence[NodeChecks]) -> str:
    failed = [one for one in findings if one.finding.status == FAIL]
    text = (
        sentence(failed[0])
        if failed
        else "node is healthy"
        if status != SKIP
        else "nothing could be determined"
    )
    return text if len(text) <= NPD_CHARS_MAX else text[: NPD_CHARS_MAX - 3] + "..."


def _few(findings: Sequence[NodeFinding]) -> str:
    more = f"; {len(findings) - FINDINGS_MAX} more" if len(findings) > FINDINGS_MAX else ""
    return "; ".join(sentence(one) for one in findings[:FINDINGS_MAX]) + more
