"""What a diagnosis says beside its verdict, and short breaks of a link that end up as the verdict."""

OOM = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.1 GiB\n"


def channels(direct):
    return "".join(
        f"node-a{node}:40:41 [{rank % 4}] NCCL INFO Channel 00/0 : {rank}[{rank % 4}] -> {(rank + 4) % 8}[{rank % 4}] [send] via NET/IB/{rank % 4}"
        + ("/GDRDMA\n" if node in direct else "\n")
        for rank in range(8)
        for node in (1 + rank // 4,)
    )


STEPS = "".join(f"2031-02-03 04:00:{at:02d},100 INFO train: step {at}/5000 loss 2.5\n" for at in range(40))
FAILED = (
    "node-a1:40:42 [1] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<44321> with status=12 opcode=0 len=0 vendor err 129 (Send)\n"
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network error\n"
    "[rank2]:[E203 04:10:41.123 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600022 milliseconds before timing out.\n"
)


def link(down, up):
    return (
        f"Feb  3 {down} node-a2 kernel: [84645.1] mlx5_core 0000:9a:00.1 ens3f1np1: Link down\n"
        f"Feb  3 {up} node-a2 kernel: [84648.1] mlx5_core 0000:9a:00.1 ens3f1np1: Link up\n"
    )


def test_gpudirect_on_some_nodes_is_noted_beside_any_verdict(diagnosis):
    found = diagnosis(channels({1}) + STEPS + OOM)
    assert found.category == "gpu_oom"
    assert "GPUDirect RDMA on 1 node, not on 1: node-a2" in found.notes[0].en
    assert "node-a2" in found.notes[0].zh


def test_a_slow_job_gets_a_note_of_gpudirect_on_some_nodes(diagnosis):
    found = diagnosis(channels({1}) + STEPS)
    assert (found.category, len(found.notes)) == ("none", 1)


def test_nodes_that_are_alike_are_not_spoken_of(diagnosis):
    assert diagnosis(channels({1, 2}) + STEPS + OOM).notes == ()


def test_a_short_break_before_a_transfer_failed_is_its_cause(diagnosis):
    found = diagnosis(STEPS + link("04:00:41", "04:00:44") + FAILED)
    assert found.category == "nic_link_flap"
    assert (found.culprits[0].host, found.culprits[0].device) == ("node-a2", "ens3f1np1")
    assert "3 s" in found.title.en
    assert "ib-completion-12" in {fact.signature for fact in found.evidence}


def test_a_short_break_of_long_ago_is_only_mentioned(diagnosis):
    found = diagnosis(
        link("01:00:41", "01:00:44")
        + STEPS
        + FAILED.replace("[rank1]", "[E203 04:10:41.100 x.cpp:1] [rank1]")
    )
    assert found.category == "nccl_network_error"
    assert "ens3f1np1 on node-a2" in found.notes[0].en


def test_a_short_break_is_no_matter_to_another_failure(diagnosis):
    found = diagnosis(link("04:00:20", "04:00:23") + STEPS + OOM)
    assert (found.category, found.notes) == ("gpu_oom", ())


def test_a_job_that_trains_over_a_short_break_is_well(diagnosis):
    found = diagnosis(STEPS + link("04:00:20", "04:00:23"))
    assert found.category == "none"
    assert "3 s" in found.notes[0].en


def test_a_short_break_alone_is_what_was_found(diagnosis):
    assert diagnosis(link("04:00:20", "04:00:23")).category == "nic_link_flap"


def test_a_kernel_that_can_make_jobs_hang_is_noted_beside_a_hang(diagnosis):
    old = "Detected kernel version 4.19.0, which is below the recommended minimum of 5.5.0; this can cause the process to hang.\n"
    first = "".join(
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 60000{rank} milliseconds before timing out.\n"
        for rank in range(4)
    )
    found = diagnosis(old + first)
    assert found.category == "nccl_init_failure"
    assert [note.en for note in found.notes] == [
        "The kernel 4.19.0 is older than recommended (5.5.0). "
        "If jobs hang for no other reason, update the kernel of the node to 5.5.0 or newer."
    ]
    assert diagnosis(old + OOM).notes == ()


def test_the_log_of_holdfast_gives_the_category_of_its_verdict(diagnosis):
    failed = (
        "2031-02-03 04:00:00 incident 1: rank 2 on worker 0 failed: exit code 1\n"
        "2031-02-03 04:00:01 incident 1: verdict: rank 2 ran out of GPU memory (gpu_oom, 97% sure); culprit: rank 2\n"
    )
    found = diagnosis(failed)
    assert (found.category, found.title.en) == ("gpu_oom", "Holdfast said: rank 2 ran out of GPU memory")
