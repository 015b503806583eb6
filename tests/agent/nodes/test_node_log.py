"""Faults of devices in the kernel's log: whose they are, and when they are told."""

from core.diagnosis.candidate_kit import knowing
from holdfast.agent.nodes.log import DeviceFound, NodeLog
from holdfast.agent.watch.logs import LogWatch, Signatures
from holdfast.model.verdicts import Culprit, Verdict
from holdfast.observe.host.kernel_follow import KernelFollower
from holdfast.observe.search.signature_store import package_signatures

XID = "[ 100.{n}] NVRM: Xid (PCI:0000:5d:00): 79, pid=77, name=python, GPU has fallen off the bus.\n"
MINE, OTHER = "0000:5d:00.0", "0000:91:00.0"


def node_log(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text("")
    return log, NodeLog(KernelFollower(tmp_path / "kmsg", [log], ("no-such-reader",)))


def watch():
    signatures = Signatures(lambda: knowing(*(s for s in package_signatures() if s.area == "kernel")), None)
    assert signatures.wait(250), signatures.why_not
    return LogWatch(signatures, "attempt-001/worker-0")


def test_a_device_of_the_jobs_is_reported_once(tmp_path):
    log, node = node_log(tmp_path)
    logs = watch()
    log.write_text(XID.format(n=1))
    logs.look(node.poll(10.0), 10.0, now=True)
    assert node.failed(logs, [OTHER]) == []
    assert node.failed(logs, [MINE]) == [DeviceFound("0000:5d:00", "xid_79")]
    assert node.failed(logs, [MINE]) == []


def test_a_log_that_cannot_be_read_is_reported_once(tmp_path):
    node = NodeLog(KernelFollower(tmp_path / "kmsg", [], ("no-such-reader",)))
    assert "cannot be read" in node.news()
    assert node.news() == ""
    assert node.poll(1.0) == []


def test_a_job_that_failed_of_a_device_names_it(tmp_path):
    _, node = node_log(tmp_path)
    culprits = (Culprit(rank=3), Culprit(device=MINE))
    verdict = Verdict(
        category="xid_48", class_="hardware", title="t", confidence=0.9, action="reset_gpu", culprits=culprits
    )
    assert node.failed_of(verdict) == [DeviceFound(MINE, "xid_48")]
    assert node.failed_of(verdict) == []
