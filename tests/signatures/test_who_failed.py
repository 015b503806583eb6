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


def test_of_hydras_reports_the_ranks_that_crashed(diagnosis):
    line = "=" * 60
    report = "\n{line}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK {rank} PID 70{rank} RUNNING AT n{node}\n=   KILLED BY SIGNAL: {how}\n{line}\n"
    killed, crashed = "9 (Killed)", "11 (Segmentation fault)"
    text = "".join(
        report.format(line=line, rank=rank, node=1 + rank // 2, how=how)
        for rank, how in enumerate([killed, crashed, killed, crashed])
    )
    found = diagnosis("iteration 4 done\n" + text)
    assert (found.category, found.action) == ("segfault", "fix_code")
    assert [(one.rank, one.host) for one in found.culprits] == [(1, "n1"), (3, "n2")]


def test_the_host_of_a_job_that_an_old_slurm_cancelled(diagnosis):
    found = diagnosis("work begins\nslurmstepd: *** JOB 77 CANCELLED AT 2031-05-06T07:01:30 *** on n2-7\n")
    assert (found.category, [one.host for one in found.culprits]) == ("terminated", ["n2-7"])


def test_the_rank_before_a_message_of_psm(diagnosis):
    found = diagnosis("n2:rank5: PSM3 can't open nic unit: 1 (err=23)\nmake: *** [test] Error 143\n")
    assert [(one.rank, one.host) for one in found.culprits] == [(5, "n2")]


def test_a_buffer_that_is_not_there_is_a_fault_of_the_program_not_of_the_network(diagnosis):
    found = diagnosis(
        "[n1][[71,1],0][btl_tcp_frag.c:227:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv error (0x7ffe, 9216)\n"
        "\tBad address(1)\n\n[n1.local:711] pml_ob1_sendreq.c:308 FATAL\n"
    )
    assert (found.category, found.action) == ("segfault", "fix_code")


def test_an_image_that_cannot_be_imported_is_no_fault_of_the_node(diagnosis):
    said = "slurmstepd: error: pyxis: "
    found = diagnosis(
        f"pyxis: importing docker image: tiny.sqsh\n{said}child 71 failed with error code: 1\n"
        f"{said}failed to import docker image\n{said}printing enroot log file:\n"
        f"{said}    [INFO] Querying registry for permission grant\n{said}couldn't start container\n"
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n"
        "srun: error: n2: task 0: Exited with exit code 1\n"
    )
    assert (found.category, found.action) == ("config_error", "fix_config")
