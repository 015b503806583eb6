"""Communication from end to end: what libraries beside NCCL say when a peer or the network is gone, and who is named."""

import pytest

# what the log says: category, a part of the first error, the ranks and hosts that are named
CASES = {
    "verbs-words-of-any-program": (
        "I0101 00:00:00.000001 71 context.cpp:9] device mlx5_1 in use\n"
        "E0101 00:00:09.000001 71 pool.cpp:90] slice of 4096 bytes to 10.1.0.7@mlx5_4 failed: transport retry counter exceeded\n",
        ("nccl_network_error", "transport retry counter exceeded", []),
    ),
    "queue-pair-does-not-connect": (
        "Remote LID: 0x0, QPN: 20, PSN: 0\nFailed to modify QP to RTR: Connection timed out\nerrno: 110\n",
        ("nccl_network_error", "Failed to modify QP to RTR", []),
    ),
    "nvshmem-cannot-connect": (
        "/s/ibrc/ibrc.cpp:41: non-zero status: 110 ibv_modify_qp failed \n/s/ibrc/ibrc.cpp:99: non-zero status: 7 ep_connect failed \n"
        "/s/host/init/init.cu:44: non-zero status: 7 nvshmem setup connections failed \n",
        ("nccl_network_error", "ibv_modify_qp failed", []),
    ),
    "nvshmem-cannot-start": (
        "/s/ibgda/ibgda.cpp:2: NULL value Unable to create ah.\n/s/host/init/init.cu:44: non-zero status: 7 nvshmem setup connections failed \n",
        ("nccl_init_failure", "Unable to create ah", []),
    ),
    "kernel-gives-up-before-the-launch-fails": (
        "DeepEP combine NVL receiver timeout, channel: 9, RDMA: 1, nvl: 3\nRuntimeError: CUDA error: unspecified launch failure\n",
        ("collective_timeout", "DeepEP combine", []),
    ),
    "libfabric-names-the-peer": (
        "libfabric:45:17085:efa:cq:efa_rdm_txe_handle_error():7<warn> err: 5, message: Invalid address My host id: i-01 Peer EFA addr: y Peer host id: i-02 (7)\n",
        ("nccl_network_error", "message: Invalid address", ["i-02"]),
    ),
    "plugin-cannot-be-set-up": (
        "g2:40:50 [1] NCCL INFO NET/OFI Selected Provider is efa\n"
        "g2:40:50 [1] new_component:45 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument\n",
        ("nccl_init_failure", "Couldn't open AV", []),
    ),
    "mpich-error-stack": (
        "MPICH ERROR [Rank 5] [job id 9.0] [Tue Jun 11 15:11:42 2024] [c1] - Abort(539) (rank 5 in comm 0): Fatal error in PMPI_Waitall: Other MPI error, error stack:\n"
        "MPIDI_OFI_handle_cq_error(10): OFI poll failed (ofi_events.c:10:MPIDI_OFI_handle_cq_error:Input/output error - UNDELIVERABLE)\n",
        ("nccl_network_error", "OFI poll failed", [5]),
    ),
    "open-mpi-names-the-peer-below": (
        "An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates a failure in the peer process.\n\n"
        "  Local host: n3\n  Local PID:  77\n  Peer host:  n6\n",
        ("process_killed", "peer process has unexpectedly disconnected", ["n6"]),
    ),
    "lost-daemon-stands-below": (
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[6,0],0] on node head\n  Remote daemon: [[6,0],1] on node 10.1.1.7\n",
        ("node_down", "lost communication", ["10.1.1.7"]),
    ),
    "horovod-names-who-is-missing": (
        "[1,0]<stderr>:[2019-04-13 13:55:31.8: W horovod/common/operations.cc:588] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
        "[1,0]<stderr>:Stalled ops:HorovodBroadcast_kernel_0 [missing ranks: 3]\n",
        ("collective_missing_rank", "One or more tensors", [3]),
    ),
    "watchdog-whose-end-crashes": (
        "[rank2]:[E502 10:31:02.113 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
        "[rank2]:[E502 10:31:02.114 ProcessGroupNCCL.cpp:756] [Rank 2] To avoid data inconsistency, we are taking the entire process down.\n"
        "Fatal Python error: Segmentation fault\n\nThread 0x00007f01 (most recent call first):\n",
        ("collective_timeout", "Watchdog caught", []),
    ),
    "call-in-a-communicator-that-the-watchdog-took-away": (
        "[E ProcessGroupNCCL.cpp:325] Some NCCL operations have failed or timed out. To avoid this, we are taking the entire process down.\n"
        "  what():  [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804582 milliseconds before timing out.\n"
        'Traceback (most recent call last):\n  File "/w/fit.py", line 75, in fit\n    loss.backward()\n'
        "RuntimeError: NCCL error in: /b/torch/lib/c10d/ProcessGroupNCCL.cpp:911, unhandled system error, NCCL version 2.7.8\n",
        ("collective_timeout", "Watchdog caught", []),
    ),
    "call-that-failed-before-the-watchdog": (
        'Traceback (most recent call last):\n  File "/w/fit.py", line 75, in fit\n    loss.backward()\n'
        "RuntimeError: NCCL error in: /b/torch/lib/c10d/ProcessGroupNCCL.cpp:911, unhandled system error, NCCL version 2.7.8\n"
        "  what():  [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804582 milliseconds before timing out.\n",
        ("nccl_network_error", "unhandled system error", []),
    ),
    "crash-that-others-wait-for": (
        "[rank1]: Fatal Python error: Segmentation fault\n[rank1]: Current thread 0x00007f01 (most recent call first):\n"
        "[rank2]:[E502 10:31:02.113 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n",
        ("segfault", "Segmentation fault", [1]),
    ),
    "barrier-names-whom-it-waits-for": (
        "RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check\n",
        ("collective_missing_rank", "monitoredBarrier", [0]),
    ),
    "watchdog-line-broken-by-a-terminal": (
        "[rank2]:[E816 00:34:01.1 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=13, OpType=_ALLGATHER_BA[45/99]\n"
        "n=71, NumelOut=57, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n",
        ("collective_timeout", "Watchdog caught", []),
    ),
    "who-timed-out-before-the-heartbeat": (
        "[rank7]:[E626 05:14:36.39 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 7] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress\n"
        "[rank2]:[E626 05:06:30.92 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=8, Timeout(ms)=1800000) ran for 1800065 milliseconds before timing out.\n",
        ("collective_timeout", "Watchdog caught", []),
    ),
    "old-nccl-compares": (
        "n7:12:19 [3] init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 39. You can\n",
        ("collective_mismatch", "Mismatched collective", [39]),
    ),
    "npu-call-before-the-head-of-its-report": (
        "RuntimeError: [ERROR] HCCL error in: x/ProcessGroupHCCL.cpp:64\n[ERROR] 2024-05-21-11:58:01 (PID:9, Device:1, RankID:1) ERR02200 DIST call hccl api failed.\nEI9999: Inner Error!\n",
        ("npu_runtime", "HCCL error in", [1]),
    ),
    "shell-complaint-within-a-training-that-hangs-later": (
        "epoch: 4/20, cur_iter=42/77, loss=1.5\n/bin/sh: gputop: command not found\n"
        "[E ProcessGroupNCCL.cpp:587] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000) ran for 1803000 milliseconds before timing out.\n",
        ("collective_missing_rank", "Watchdog caught", []),
    ),
    "two-ranks-with-one-place-are-in-two-groups": (
        "[rank13]:[E218 04:54:22.86 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=21, OpType=ALLTOALL_BASE, NumelIn=13, NumelOut=15, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.\n"
        "[rank13]:[E218 04:54:22.87 ProcessGroupNCCL.cpp:1795] [PG ID 11 PG GUID 119 Rank 1] Exception (either an error or timeout) detected by watchdog at work: 21, last enqueued NCCL work: 22, last completed NCCL work: 20.\n"
        "[rank15]:[E218 04:54:22.88 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=32, NumelOut=32, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.\n",
        ("collective_timeout", "[rank13]", []),
    ),
    "store-is-gone": (
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes\n\nThe above exception was the direct cause of the following exception:\n"
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.\n",
        ("rendezvous_timeout", "failed to recv", []),
    ),
    "warning-of-the-first-nccl": (
        "include/socket.h:344 WARN Socket creation failed : Address family not supported by protocol\n",
        ("nccl_wrong_interface", "Socket creation failed", []),
    ),
    "fabric-is-told-before-its-hint": (
        "g3:8:9 [2] transport/nvls.cc:254 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152:\n"
        "This is usually caused by a system or configuration error in the Fabric Manager or NVSwitches.\nRuntimeError: NCCL error: unhandled cuda error\n",
        ("fabric_manager", "Failed to bind", []),
    ),
    "boosting": ("[LightGBM] [Warning] Connecting to rank 5 failed, waiting for 21 milliseconds\n[LightGBM] [Fatal] Connecting to rank 5 failed\n", ("nccl_network_error", "Connecting to rank 5", [5])),
    "replicas-that-do-not-come": ("torchft::lighthouse: 2031-01-09T19:50:55+00:00 - INFO start: No quorum, only have 1 participants, need 2\n", ("rendezvous_timeout", "No quorum", [])),
    "collective-of-tensorflow": (
        "2031-05-25 11:10:57.9: E tensorflow/core/common_runtime/base_collective_executor.cc:249] BaseCollectiveExecutor::StartAbort UNAVAILABLE: Connection reset by peer\nFatal Python error: Aborted\n",
        ("nccl_network_error", "StartAbort", []),
    ),
    "gloo-meets-nobody": (
        "Traceback (most recent call last):\n  File \"d.py\", line 13, in m\n    dist.init_process_group(backend=\"gloo\")\nRuntimeError: Wait timeout\n",
        ("rendezvous_timeout", "Wait timeout", []),
    ),
    "omni-path": ("[1] n1.32hfi_userinit: mmap of rcvhdrq at dab failed: Resource temporarily unavailable\n[1] n1.32PSM2 can't open hfi unit: -1 (err=23)\n", ("nccl_init_failure", "hfi_userinit", [])),
    "ray-names-the-node-below": (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot\n"
        "the problem, check the logs. Worker IP address: 10.0.1.75 Worker port: 10230\n",
        ("process_killed", "A worker died", ["10.0.1.75"]),
    ),
    "crash-in-a-frame-of-nccl": (
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\nPC: @     0x7f2410468842  (unknown)  proxyProgressAsync()\n",
        ("nccl_segfault", "proxyProgressAsync", []),
    ),
    "status-of-a-group-whose-timeout-was-cut-away": (
        "[rank6]:[E912 09:28:22.64 ProcessGroupNCCL.cpp:1709] [PG 0 (default_pg) Rank 6] Timeout at NCCL work: 2, last enqueued NCCL work: 2, last completed NCCL work: 1.\n",
        ("collective_timeout", "[rank6]", []),
    ),
    "open-mpi-names-whom-it-cannot-reach": (
        "A process or daemon was unable to complete a TCP connection\nto another process:\n  Local host:    head\n  Remote host:   n14.cluster\n",
        ("nccl_network_error", "unable to complete a TCP connection", ["n14.cluster"]),
    ),
    "open-mpi-peer-closed": (
        "[n2][[6,1],2][btl_tcp.c:556:mca_btl_tcp_recv_blocking] remote peer unexpectedly closed connection while I was waiting\n",
        ("nccl_network_error", "unexpectedly closed", []),
    ),
    "plugin-out-of-step-before-the-communicator-is-refused": (
        "step 40 loss 2.1\nstep 41 loss 2.0\nget_req_from_imm_data:1399 NCCL WARN NET/OFI Unexpected status (3) for message 77\n"
        "g2:40:50 [1] init.cc:301 NCCL WARN Attempt to use communicator before the previous operation returned ncclSuccess\n"
        "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:3144, internal error - please report this issue to the NCCL developers, NCCL version 2.25.1\n"
        "ncclInternalError: Internal check failed.\n",
        ("nccl_bug", "Unexpected status", []),
    ),
    "paddle-names-the-rank-that-was-killed": (
        "[2031/05/04 01:00:00] ppocr INFO: epoch: [3/9], global_step: 40, loss: 2.1\nLAUNCH INFO 2031-05-04 01:00:50,211 Pod failed\n"
        "LAUNCH ERROR 2031-05-04 01:00:50,216 Container failed !!!\n"
        "Container rank 5 status failed cmd ['/opt/py/bin/python', '-u', 'fit.py'] code -9 log log/workerlog.5\nLAUNCH INFO 2031-05-04 01:00:51,412 Exit code -9\n",
        ("process_killed", "Container rank 5", [5]),
    ),
    "paddle-names-the-rank-whose-exception-stands-above": (
        "Traceback (most recent call last):\n  File \"fit.py\", line 8, in <module>\n    main()\nValueError: batch of 0 items\n"
        "LAUNCH ERROR 2031-05-04 01:00:50,216 Container failed !!!\n"
        "Container rank 2 status failed cmd ['/opt/py/bin/python', '-u', 'fit.py'] code 1 log log/workerlog.2\n",
        ("python_exception", "ValueError: batch of 0 items", []),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("log", "expected"), CASES.values(), ids=CASES.keys())
def test_what_it_is_and_who(diagnosis, log, expected):
    category, first, named = expected
    found = diagnosis(log)
    assert (found.category, first in (found.first_error.text if found.first_error else "")) == (
        category,
        True,
    )
    known = {part for one in found.culprits for part in (one.rank, one.host) if part is not None}
    assert set(named) <= known, known


def test_a_transport_that_nvshmem_does_without_is_no_failure(diagnosis):
    log = (
        "WARN: init failed for remote transport: ibrc\nstep 1 loss 2.1\nstep 2 loss 2.0\nTraining completed\n"
    )
    assert diagnosis(log).category == "none"


def test_a_benchmark_whose_results_were_right_is_no_failure_though_a_library_warned(diagnosis):
    log = "[n1:77] cuda_copy_md.c:483  UCX  WARN  cuPointerSetAttribute(0x7f, SYNC_MEMOPS) error: operation not supported\n# Out of bounds values : 0 OK\n"
    assert diagnosis(log).category == "none"


def test_epochs_of_ranks_are_compared_in_the_output_of_a_worker_too(diagnosis, tmp_path):
    """Part of each line is known by itself, and names no rank; the folder names a worker."""
    lines = "".join(
        f"[2031-02-03 04:00:40,000][INFO][train_epoch]:Rank:{rank} Epoch:[{7 + rank % 2}][30/all] Loss 0.3{rank}\n"
        for rank in range(4)
    )
    worker = tmp_path / "attempt-001" / "worker-0"
    worker.mkdir(parents=True)
    (worker / "stdout").write_text(lines)
    found = diagnosis("")
    assert (found.category, found.title.en) == (
        "uneven_data",
        "ranks 0, 2 are in epoch 7, ranks 1, 3 are in epoch 8",
    )
