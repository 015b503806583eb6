"""Who is named as the culprit, and with what."""

from core.diagnosis.candidate_kit import candidate, search, signature
from holdfast.core.diagnosis.blame import culprits
from holdfast.core.diagnosis.choice.choose import choose
from holdfast.model.verdicts import Culprit

OOM = signature("oom", "gpu_oom")
PEER = signature("peer", "nccl_network_error", rank_from="capture")
PORT = signature("torch-port-bind-failed", "port_in_use")
WAITS = signature("waits", "collective_timeout", role="symptom", rank_from="none", severity="fatal")
KILLED = signature("killed", "process_killed", role="symptom", severity="fatal")
TASK = signature("task", "slurm_task_crash", role="symptom", area="scheduler")
RAY_TASK = signature("ray-task-error", "python_exception", role="symptom", rank_from="none", weight=0.35)
ROOT_CAUSE = signature("torchrun-root-cause", "unknown", role="context")
TABLE_RANK = signature("torchrun-table-rank", "unknown", role="context")
TABLE_HOST = signature("torchrun-table-host", "unknown", role="context")


def named(*candidates):
    return culprits(choose(candidates), candidates, search(*(one.match for one in candidates)))


def test_who_wrote_the_line_and_others_with_the_same_error():
    assert named(candidate(OOM, offset=1, rank=3), candidate(OOM, offset=9, rank=5)) == (
        Culprit(rank=3),
        Culprit(rank=5),
    )


def test_whom_the_line_blames():
    blamed = candidate(PEER, rank=0, captures={"peer": "gpu-17"})
    assert named(blamed) == (Culprit(host="gpu-17"),)


def test_a_fault_that_is_no_ranks_is_its_machines():
    limit = signature("limit", "host_limit", rank_from="none")
    asked = signature("asked", "nccl_network_error", rank_from="none")
    assert named(candidate(limit, host="gpu-17")) == (Culprit(host="gpu-17"),)
    assert named(candidate(asked, host="gpu-17")) == ()


def test_the_device_that_a_report_names_below():
    error = signature("error", "pcie_aer", area="kernel")
    below = signature("error-where", "pcie_aer", role="context")
    assert named(
        candidate(error, offset=1, host="a", captures={"device": "0000:03:00.0"}),
        candidate(below, offset=9, captures={"device": "0000:03:00.1"}),
    ) == (Culprit(host="a", device="0000:03:00.1"),)


def test_the_root_cause_of_torchruns_table_not_its_other_failures():
    assert named(
        candidate(OOM, offset=1),
        candidate(TABLE_HOST, offset=10, captures={"host": "a"}),
        candidate(TABLE_RANK, offset=11, captures={"rank": "1"}),
        candidate(ROOT_CAUSE, offset=20),
        candidate(TABLE_HOST, offset=21, captures={"host": "b"}),
        candidate(TABLE_RANK, offset=22, captures={"rank": "6"}),
    )[0] == Culprit(rank=6, host="b")


def test_the_only_entry_of_a_table_whose_head_is_cut_off():
    crashed = candidate(signature("crashed", "segfault", role="symptom", rank_from="none"), offset=13)
    entry, other = (candidate(TABLE_RANK, offset=n, captures={"rank": str(n)}) for n in (11, 15))
    assert named(crashed, entry) == (Culprit(rank=11),)
    assert named(crashed, entry, other) == ()
    assert named(candidate(WAITS, offset=13), entry) == ()


def test_whom_a_launcher_saw_fail_where_the_line_names_nobody():
    assert named(candidate(OOM, offset=1), candidate(KILLED, offset=9, captures={"local_rank": "2"})) == (
        Culprit(rank=2),
    )


def test_a_scheduler_knows_the_host_of_a_rank():
    task = candidate(TASK, offset=9, rank=28, host="g11")
    assert named(candidate(OOM, offset=1, rank=28), task) == (Culprit(rank=28, host="g11"),)


def test_a_process_has_the_device_of_its_own_number_where_nobody_tells_ranks():
    full = candidate(OOM, offset=1, captures={"device": "2"})
    assert named(full) == (Culprit(rank=2, device="GPU 2"),)
    assert named(full, candidate(KILLED, offset=9, rank=7))[0].rank is None


def test_the_interface_or_disk_that_a_line_of_the_kernel_is_about():
    hung = signature("netdev-watchdog", "nic_down", area="kernel")
    assert named(candidate(hung, host="n5", captures={"name": "ens3f0np0"})) == (
        Culprit(host="n5", device="ens3f0np0"),
    )
    assert named(candidate(hung, host="n5", captures={"name": "High Temperature"})) == (Culprit(host="n5"),)
    disk = signature("disk", "storage_io", area="kernel")
    for text, device in (
        ("[ 9.1] ata3.00: exception Emask 0x0", "ata3.00"),
        ("I/O error, dev sdb, sector 8", "sdb"),
        ("a disk failed", None),
    ):
        assert named(candidate(disk, host="n5", text=text)) == (Culprit(host="n5", device=device),)


def test_ray_names_the_host_of_the_worker_above_its_exception():
    nested = (candidate(RAY_TASK, offset=n, captures={"host": f"10.0.0.{n}"}) for n in (1, 2))
    assert named(*nested, candidate(OOM, offset=3)) == (Culprit(host="10.0.0.2"),)


def test_who_only_waits_is_nobodys_culprit():
    assert named(candidate(WAITS, rank=3)) == ()


def test_the_socket_of_the_rendezvous_is_rank_0s():
    assert named(candidate(PORT)) == (Culprit(rank=0),)


def test_the_only_host_there_is():
    assert named(candidate(OOM, offset=1, rank=3), candidate(KILLED, offset=5, host="node-a"))[0] == Culprit(
        rank=3, host="node-a"
    )


def test_nothing_wrong_is_nobodys_fault():
    assert named() == ()


def test_the_rank_that_a_launcher_saw_fall_first_is_named_though_its_own_words_are_lost():
    assert named(
        candidate(OOM, offset=1, rank=3),
        candidate(OOM, offset=5, rank=0),
        candidate(ROOT_CAUSE, offset=20),
        candidate(TABLE_HOST, offset=21, captures={"host": "b"}),
        candidate(TABLE_RANK, offset=22, captures={"rank": "6"}),
    ) == (Culprit(rank=6, host="b"), Culprit(rank=3, host="b"), Culprit(rank=0, host="b"))


def test_a_peer_that_is_known_by_its_address_has_the_name_it_gave_itself():
    says = signature("nccl-bootstrap-interface", "nccl_wrong_interface", role="context", severity="info")
    itself = candidate(says, offset=1, host="gpu-17", captures={"address": "10.0.0.7"})
    other = candidate(says, offset=2, host="gpu-3", captures={"address": "10.0.0.9"})
    refused = candidate(PEER, offset=9, rank=0, captures={"peer": "10.0.0.7"})
    assert named(itself, other, refused) == (Culprit(host="gpu-17"),)
    assert named(other, refused) == (Culprit(host="10.0.0.7"),)


def test_the_processes_that_a_launcher_reports_to_have_crashed_not_those_that_it_killed():
    head = signature("head", "unknown", role="context", severity="info", rank_from="none", rank_end=True)
    crashed = signature("crashed", "segfault", role="symptom", severity="fatal", rank_from="none")
    killed = signature("killed-9", "process_killed", role="symptom", severity="fatal", rank_from="none")
    signals = {0: "KILLED: 9", 1: "KILLED: 11", 2: "KILLED: 9", 3: "KILLED: 11"}
    heads = [
        candidate(head, offset=10 * n, record=(how,), captures={"rank": str(n), "host": "n4"})
        for n, how in signals.items()
    ]
    crash, kill = (
        candidate(crashed, offset=11, text="KILLED: 11"),
        candidate(killed, offset=1, text="KILLED: 9"),
    )
    assert named(*heads, crash) == (Culprit(rank=1, host="n4"), Culprit(rank=3, host="n4"))
    assert named(*heads, kill) == ()
    assert named(heads[0], kill) == (Culprit(rank=0, host="n4"),)


def test_a_device_by_its_number_is_called_what_it_is():
    accused = signature("heartbeat", "npu_heartbeat", area="npu")
    (npu,) = named(candidate(accused, rank=4, captures={"host": "10.0.0.7", "device": "5"}))
    (gpu,) = named(candidate(OOM, rank=4, captures={"device": "5"}))
    assert (npu.host, npu.device, gpu.device) == ("10.0.0.7", "NPU 5", "GPU 5")
