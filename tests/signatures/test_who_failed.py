"""Who is named where a launcher, a rank and the kernel each tell a part of it."""

HEAD = "n{node}:{pid}:{pid} [{gpu}] NCCL INFO Bootstrap : Using eth0:10.8.0.{node}<0>\n"
TABLE = (
    "Root Cause (first observed failure):\n[0]:\n  time      : 2032-05-06_07:01:30\n  host      : n{node}\n"
    "  rank      : {rank} (local_rank: {gpu})\n  exitcode  : 1 (pid: 7001)\n  error_file: <N/A>\n"
)


def ranks(folder, ends):
    for rank in range(8):
        node, gpu = 1 + rank // 4, rank % 4
        text = HEAD.format(node=node, pid=7000 + rank, gpu=gpu) + ends.get(rank, "")
        (folder / f"n{node}").mkdir(exist_ok=True)
        (folder / f"n{node}" / f"rank{rank}.log").write_text(text)


def test_a_rank_that_complains_of_a_peer_is_not_named_for_ending_first(diagnosis, tmp_path):
    error = "n1:7001:7201 [1] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer 10.8.0.2<3600> with status=12 opcode=129 len=0 vendor err 129\n"
    ranks(tmp_path, {1: error})
    found = diagnosis(TABLE.format(node=1, rank=1, gpu=1))
    assert [(one.rank, one.host) for one in found.culprits] == [(None, "n2")]


def test_the_rank_that_used_a_device_is_named_with_it(diagnosis, tmp_path):
    failed = 'Traceback (most recent call last):\n  File "/w/t.py", line 8, in main\nRuntimeError: CUDA error: unspecified launch failure\n'
    ranks(tmp_path, {6: failed})
    (tmp_path / "n2" / "dmesg.txt").write_text(
        "May  6 07:01:28 n2 kernel: [9.1] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    found = diagnosis(TABLE.format(node=2, rank=6, gpu=2))
    assert [(one.rank, one.host, one.device) for one in found.culprits] == [(6, "n2", "0000:9b:00")]


def test_where_several_ranks_of_a_node_failed_none_is_named_with_the_device(diagnosis, tmp_path):
    failed = 'Traceback (most recent call last):\n  File "/w/t.py", line 8, in main\nRuntimeError: CUDA error: unspecified launch failure\n'
    ranks(tmp_path, {6: failed, 7: failed})
    (tmp_path / "n2" / "dmesg.txt").write_text(
        "May  6 07:01:28 n2 kernel: [9.1] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    found = diagnosis("launched\n")
    assert [(one.rank, one.device) for one in found.culprits] == [(None, "0000:9b:00")]
