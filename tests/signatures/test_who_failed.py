"""Who is named, and which line is quoted, where a launcher, ranks and the kernel each tell a part of it."""

import pytest

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


def test_of_hydras_report_of_a_bus_error_the_rank(diagnosis):
    found = diagnosis(
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 3 PID 703 RUNNING AT n2\n=   KILLED BY SIGNAL: 7 (Bus error)\n"
    )
    assert found.category == "shm_oom"
    assert [(one.rank, one.host) for one in found.culprits] == [(3, "n2")]


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


# Who ended first, as the launcher tells, and what the others said because of that.

STEPS = "".join(f"step {at * 10}/900 loss {3 - at / 100:.4f}\n" for at in range(1, 9))
GLOO = (
    "RuntimeError: [/src/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.1.0.7]:4410.",
    "RuntimeError: [/src/gloo/gloo/transport/tcp/pair.cc:553] Read error [10.1.0.7]:4410: Connection reset by peer",
)
NCCL = "torch.distributed.DistBackendError: NCCL error in: /src/NCCLUtils.hpp:77, remote process exited or there was a network error, NCCL version 2.21.5"
SIGNALS = {-15: "SIGTERM", -9: "SIGKILL", -11: "SIGSEGV"}
CATEGORIES = {
    -15: {"terminated"},
    -9: {"process_killed", "host_oom"},
    -11: {"segfault"},
    7: {"python_exception"},
}


def raised(error, rank=None, head=None):
    head = f"[rank{rank}]: " if head is None else head
    lines = (
        "Traceback (most recent call last):",
        '  File "/app/fit.py", line 88, in <module>',
        "    fit()",
        error,
    )
    return "".join(f"{head}{line}\n" for line in lines)


def entry(rank, code, at):
    how = (
        f"Signal {-code} ({SIGNALS[code]}) received by PID {700 + rank}"
        if code < 0
        else "To enable traceback see"
    )
    return (
        f"  time      : 2031-03-04_08:09:{at}\n  host      : n1\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {700 + rank})\n  error_file: <N/A>\n  traceback : {how}\n"
    )


def torchrun(first, code, others=(), closing=()):
    """What torchrun or accelerate says; `closing`: ranks that it ends."""
    return (
        "".join(
            f"W0304 08:09:10.5 600 torch/distributed/elastic/multiprocessing/api.py:900] Sending process {700 + rank} "
            "closing signal SIGTERM\n"
            for rank in closing
        )
        + f"E0304 08:09:11.3 600 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) "
        f"local_rank: {first} (pid: {700 + first}) of binary: /opt/py/bin/python\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nFailures:\n"
        + "".join(f"[{at}]:\n{entry(rank, end, 12)}" for at, (rank, end) in enumerate(others, 1))
        + f"Root Cause (first observed failure):\n[0]:\n{entry(first, code, 10)}"
    )


@pytest.mark.parametrize("error", [*GLOO, NCCL], ids=["closed", "reset", "nccl"])
@pytest.mark.parametrize("code", CATEGORIES)
def test_the_rank_that_torchrun_saw_end_first_is_why_its_peer_lost_a_connection(diagnosis, code, error):
    for others, closing in (((0, 1),), ()), (((0, -15), (2, -15)), (0, 2)):
        found = diagnosis(STEPS + raised(error, 0) + torchrun(1, code, others, closing))
        assert found.category in CATEGORIES[code]
        assert [(one.rank, one.host) for one in found.culprits] == [(1, "n1")]
        assert f"failed (exitcode: {code})" in found.first_error.text


def test_a_code_of_the_programs_own_tells_no_action(diagnosis):
    assert diagnosis(STEPS + raised(GLOO[0], 0) + torchrun(1, 7)).action == "unknown"


def test_an_uncaught_exception_can_be_the_lost_connection_itself(diagnosis):
    both = raised(NCCL, 1) + raised(NCCL, 0)
    assert diagnosis(STEPS + both + torchrun(1, 1, ((0, 1),))).category == "nccl_network_error"
    of_nobody = raised(GLOO[0], head="")
    assert diagnosis(STEPS + of_nobody + torchrun(1, 1)).category == "nccl_network_error"
    other = diagnosis(STEPS + raised(GLOO[0], 0) + torchrun(1, 1))
    assert (other.category, other.culprits[0].rank) == ("python_exception", 1)  # its own output is lost


def test_a_connection_that_broke_long_before_is_no_consequence(diagnosis):
    broke = raised(NCCL, head="2031-03-04 07:00:00,100 [rank0]: ")
    end = "2031-03-04 08:09:11,300 [rank: 1] Child process with PID 701 terminated with code -15.\n"
    assert diagnosis(STEPS + broke + end).category == "nccl_network_error"


SPAWN = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with {}\n"
DEEPSPEED = "[2031-03-04 08:09:10,300] [ERROR] [launch.py:325:sigkill_handler] ['python', '-u', 'fit.py', '--local_rank=1'] exits with return code = {}\n"
MPIRUN = "mpirun noticed that process rank 1 with PID 701 on node n2 exited on signal {}.\n"
MPI_TABLE = (
    "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
    "the job to be terminated. The first process to do so was:\n\n  Process name: [[20001,1],{}]\n  Exit code:    {}\n"
)
SRUN = (
    "srun: error: n2: task 1: {}\nsrun: Terminating StepId=99.0\n"
    "slurmstepd: error: *** STEP 99.0 ON n1 CANCELLED AT 2031-03-04T08:09:12 ***\n"
    "srun: error: n1: task 0: Exited with exit code 1\n"
)
HOROVOD = "Process 1 exit with status code 7.\nTerminating remaining workers after failure of Process 1.\nProcess 0 exit with status code 143.\n"
FORMS = {
    "spawn code": (SPAWN.format("exit code 7"), {"python_exception"}, 1),
    "spawn signal": (SPAWN.format("signal SIGTERM"), {"terminated"}, 1),
    "deepspeed code": (DEEPSPEED.format(7), {"python_exception"}, None),
    "deepspeed signal": (DEEPSPEED.format(-15), {"terminated"}, None),
    "mpirun signal": (MPIRUN.format("15 (Terminated)"), {"terminated"}, 1),
    "mpirun killed": (MPIRUN.format("9 (Killed)"), {"process_killed", "host_oom"}, 1),
    "mpirun code": (MPI_TABLE.format(1, 7), {"python_exception"}, 1),
    "srun code": (SRUN.format("Exited with exit code 7"), {"slurm_task_crash"}, 1),
    "srun signal": (SRUN.format("Terminated"), {"terminated"}, 1),
    "srun crash": (SRUN.format("Segmentation fault (core dumped)"), {"segfault", "slurm_task_crash"}, 1),
    "horovodrun": (HOROVOD, {"python_exception"}, 1),
    "lightning": ("[rank: 2] Child process with PID 702 terminated with code 7.\n", {"python_exception"}, 2),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_launcher_tells_it_in_its_own_form(diagnosis, form):
    text, categories, rank = FORMS[form]
    found = diagnosis(STEPS + raised(GLOO[0], 0) + text)
    assert found.category in categories
    assert [one.rank for one in found.culprits] == ([] if rank is None else [rank])
    assert found.first_error.text in text


# Of two ranks with the same error the launcher's table decides, then time; where most have it, none is the first.

ZERO = "ZeroDivisionError: float division by zero"


def test_of_two_ranks_with_the_same_error_the_launchers_table_decides(diagnosis):
    log = STEPS + raised(ZERO, 3) + raised(ZERO, 1) + torchrun(1, 1, ((3, 1),))
    found = diagnosis(log)
    assert (found.first_error.text, found.culprits[0].rank) == (f"[rank1]: {ZERO}", 1)


def test_without_a_table_the_time_of_the_lines_decides(diagnosis):
    later, earlier = "2031-03-04 08:09:14,500 [rank2]: ", "2031-03-04 08:09:11,100 [rank5]: "
    found = diagnosis(STEPS + raised(ZERO, head=later) + raised(ZERO, head=earlier))
    assert (found.first_error.text, found.culprits[0].rank) == (earlier + ZERO, 5)


def test_where_most_ranks_have_the_error_the_first_line_is_quoted(diagnosis):
    log = STEPS + "".join(raised(ZERO, rank) for rank in (3, 1, 0, 2)) + torchrun(1, 1)
    assert diagnosis(log).first_error.text == f"[rank3]: {ZERO}"


# The line that states the cause, not what a program says of it afterwards.

NINJA = "[1/3] nvcc -c fused.cu -o fused.cuda.o\nFAILED: fused.cuda.o \nnvcc -c fused.cu -o fused.cuda.o\n{}\nninja: build stopped: subcommand failed.\nRuntimeError: Error building extension 'fused'\n"
HEAD_4 = "n4:811:950 [3] "
STATED = {
    "nvcc before ninja": (
        NINJA.format('/app/csrc/fused.cu(41): error: identifier "half8" is undefined'),
        "half8",
    ),
    "library header": (
        NINJA.format("/opt/py/site-packages/torch/include/c10/util/Half.h:9:7: error: expected ';'"),
        "Half.h:9:7",
    ),
    "linker": (NINJA.format("/usr/bin/ld: cannot find -lcudart: No such file or directory"), "-lcudart"),
    "NCCL before its proxy": (
        f"{HEAD_4}include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"
        f"{HEAD_4}proxy.cc:1620 NCCL WARN [Proxy Service 3] Failed to execute operation Setup from rank 3, retcode 1\n"
        + raised("torch.distributed.DistBackendError: NCCL error in: /s/p.cpp:22, unhandled cuda error", 3),
        "Cuda failure 2",
    ),
    "file server before its tasks": (
        "[ 9100.1] nfs: server filer7 not responding, still trying\n"
        "[ 9221.4] INFO: task python:88 blocked for more than 122 seconds.\n",
        "filer7",
    ),
    "CANCELLED before step aborted": (
        STEPS
        + "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        + "slurmstepd: error: *** STEP 99.0 ON n1 CANCELLED AT 2031-03-04T08:09:12 ***\n"
        + "srun: error: n2: task 1: Terminated\n",
        "CANCELLED AT",
    ),
}


@pytest.mark.parametrize("name", STATED)
def test_the_line_that_states_the_cause_is_the_first_error(diagnosis, name):
    text, said = STATED[name]
    assert said in diagnosis(text).first_error.text


SHOWN = {
    "a raise": '    raise RuntimeError("CUDA error: an illegal memory access was encountered")',
    "a comment": "    batch = next(it)  # may raise StopIteration; ConnectionError: peer gone",
    "a call": '    fail(f"No space left on device {dev}")',
    "a print": "    print('Out of memory: Killed process 77 (python)')",
    "a subscript": '    x = table["NCCL error: unhandled system error"]\n        ~~~~~^^^^^^^^^^^^',
}


@pytest.mark.parametrize("head", ["", "[rank4]: ", "2031-03-04 08:09:11,100 [rank4]: "])
@pytest.mark.parametrize("code", SHOWN)
def test_a_line_of_code_in_a_traceback_is_never_the_error(diagnosis, code, head):
    lines = [
        "Traceback (most recent call last):",
        '  File "/app/loop.py", line 77, in run',
        *SHOWN[code].split("\n"),
        "NameError: name 'warn' is not defined",
    ]
    found = diagnosis(STEPS + "".join(f"{head}{line}\n" for line in lines))
    assert found.category == "python_exception"
    assert found.first_error.text.endswith("NameError: name 'warn' is not defined")


def test_nobody_is_named_for_a_time_limit_but_the_node_of_the_schedulers_line(diagnosis):
    ended = (
        "slurmstepd: error: *** STEP 99.0 ON gn1 CANCELLED AT 2031-03-04T08:09:12{} ***\n"
        "srun: error: gn2: task 3: Terminated\nsrun: error: gn1: tasks 0-1: Terminated\n"
    )
    for why in (" DUE TO TIME LIMIT", ""):
        found = diagnosis(STEPS + ended.format(why))
        assert {one.rank for one in found.culprits} == {None}
        assert found.culprits[0].host == "gn1"


def test_a_network_card_that_a_standing_cpu_left_alone_is_not_the_cause(diagnosis):
    found = diagnosis(
        "[ 1273.7] igb 0000:0c:00.0 eth2: Reset adapter\n[ 1267.3] Kernel panic - not syncing: Watchdog detected hard LOCKUP on cpu 7\n"
    )
    assert (found.category, found.action) == ("soft_lockup", "reboot_node")
