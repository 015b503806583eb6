"""Tables and records that kubectl, sinfo, sacct and scontrol print: what they tell of, and of which node."""

import pytest

DESCRIBED = """Name:               {name}
Roles:              <none>
Conditions:
  Type             Status  LastHeartbeatTime                 LastTransitionTime                Reason                       Message
  ----             ------  -----------------                 ------------------                ------                       -------
  {first}   Tue, 12 Aug 2031 03:10:02 +0800   Mon, 11 Aug 2031 03:14:41 +0800   {reason}   {message}
  {ready}   Tue, 12 Aug 2031 03:10:02 +0800   Mon, 11 Aug 2031 03:14:41 +0800   KubeletReady                 kubelet is posting ready status
Addresses:
  InternalIP:  10.4.0.16

"""
WELL = DESCRIBED.format(
    name="n-a16",
    first="MemoryPressure   False",
    reason="KubeletHasSufficientMemory",
    message="fine",
    ready="Ready            True ",
)
PODS = """NAME         READY   STATUS      RESTARTS      AGE     IP           NODE     NOMINATED NODE   READINESS GATES
sft-main-0   1/1     Running     0             3h12m   10.42.3.11   n-a03    <none>           <none>
sft-work-1   0/1     {status} 2 (5m ago)   3h12m   10.42.5.13   n-a05    <none>           <none>
sft-work-2   1/1     Running     0             3h12m   10.42.6.14   n-a06    <none>           <none>
"""
NODES = """PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
train*       up 7-00:00:00      1  {state} n-b07
train*       up 7-00:00:00     12  alloc n-b[01-06,08,10-14]
debug        up      30:00      1   idle n-c01
"""
SACCT = """JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
48213         pretrain7      train     nlplab        256 {state} {code:>8}
48213.batch       batch                nlplab        128 {state}     0:15
48213.extern     extern                nlplab        256  COMPLETED      0:0
"""
RECORD = """NodeName=n-b07 Arch=x86_64 CoresPerSocket=32
   Gres=gpu:h100:8
   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason={reason} [slurm@2031-02-03T04:05:06]
NodeName=n-b08 Arch=x86_64 CoresPerSocket=32
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
"""


def described(first, reason, ready="Ready            True "):
    return WELL + DESCRIBED.format(
        name="n-a17", first=first, reason=reason, message="it says so", ready=ready
    )


CASES = {
    "memory pressure": (
        described("MemoryPressure   True ", "KubeletHasInsufficientMemory"),
        "host_oom",
        "n-a17",
    ),
    "disk pressure": (described("DiskPressure     True ", "KubeletHasDiskPressure"), "disk_full", "n-a17"),
    "pid pressure": (described("PIDPressure      True ", "KubeletHasInsufficientPID"), "host_limit", "n-a17"),
    "silent kubelet": (
        described("MemoryPressure   Unknown", "NodeStatusUnknown", ready="Ready            Unknown"),
        "none",  # its Ready row gives no reason
        None,
    ),
    "not ready": (described("Ready            False", "KubeletNotReady"), "node_not_ready", "n-a17"),
    "OOMKilled": (PODS.format(status="OOMKilled  "), "cgroup_oom", "n-a05"),
    "Evicted": (PODS.format(status="Evicted    "), "pod_evicted", "n-a05"),
    "Error": (PODS.format(status="Error      "), "process_killed", "n-a05"),
    "CrashLoopBackOff": (PODS.format(status="CrashLoopBackOff"), "process_killed", "n-a05"),
    "Unknown": (PODS.format(status="Unknown    "), "node_not_ready", "n-a05"),
    "Preempting": (PODS.format(status="Preempting "), "pod_preempted", "n-a05"),
    "OutOfcpu": (PODS.format(status="OutOfcpu   "), "failed_scheduling", "n-a05"),
    "Completed": (PODS.format(status="Completed  "), "none", None),
    "down*": (NODES.format(state="down*"), "node_down", "n-b07"),
    "drain": (NODES.format(state="drain"), "node_down", "n-b07"),
    "fail": (NODES.format(state=" fail"), "node_down", "n-b07"),
    "alloc*": (NODES.format(state="alloc*"), "node_down", "n-b07"),
    "maint": (NODES.format(state="maint"), "none", None),
    "NODE_FAIL": (SACCT.format(state=" NODE_FAIL", code="0:0"), "slurm_node_fail", None),
    "OUT_OF_ME+": (SACCT.format(state="OUT_OF_ME+", code="0:125"), "slurm_oom", None),
    "TIMEOUT": (SACCT.format(state="   TIMEOUT", code="0:0"), "slurm_time_limit", None),
    "PREEMPTED": (SACCT.format(state=" PREEMPTED", code="0:0"), "terminated", None),
    "FAILED": (SACCT.format(state="    FAILED", code="1:0"), "slurm_task_crash", None),
    "COMPLETED": (SACCT.format(state=" COMPLETED", code="0:0"), "none", None),
    "not responding": (
        RECORD.format(state="DOWN+NOT_RESPONDING", reason="Not responding"),
        "node_down",
        "n-b07",
    ),
    "gres of a record": (
        RECORD.format(state="IDLE+DRAIN", reason="gres/gpu count reported lower than configured (7 < 8)"),
        "gpu_missing",
        "n-b07",
    ),
    "reasons": ("bad DIMM A3          ops       2031-02-03T05:05:06 n-b[11-12]\n", "node_down", "n-b11"),
    "gres of slurmd": (
        "[2031-02-03T04:05:01.101] error: gres/gpu: count reported lower than configured (7 < 8) for type h100\n",
        "gpu_missing",
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_table_tells_what_and_where(diagnosis, name):
    text, category, host = CASES[name]
    found = diagnosis(text)
    assert found.category == category
    assert (found.culprits[0].host if found.culprits else None) == host


def test_two_pods_of_one_kind_are_two_culprits(diagnosis):
    rows = PODS.format(status="OOMKilled  ") + PODS.format(status="OOMKilled  ").replace("a05", "a09")
    assert [one.host for one in diagnosis(rows).culprits] == ["n-a05", "n-a09"]


def test_the_first_line_of_a_table_is_one_row(diagnosis):
    text = SACCT.format(state=" NODE_FAIL", code="0:0")
    assert diagnosis(text).first_error.text == text.splitlines()[2]


STEPS = "".join(f"[n-b01:0]: 2031-02-03 04:00:{at:02d} step {at}/60000 loss 2.5\n" for at in range(50))


def test_a_node_that_is_not_of_the_job_is_no_cause(diagnosis):
    oom = "[n-b01:0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    notes = "[n-b0{}:0]: NCCL INFO Bootstrap : Using eth0:10.0.0.{}<0>\n"
    log = STEPS + notes.format(1, 1) + notes.format(2, 2)
    assert diagnosis(log + NODES.format(state="down*")).category == "none"
    assert diagnosis(NODES.format(state="down*") + STEPS + oom).category == "gpu_oom"


WHERE = {
    "ray's own error": (
        "ray.exceptions.RayTaskError(ValueError): ray::Trainer.step() (pid=8123, ip=10.60.2.7, actor_id=9f01)\n"
        '  File "/app/pick.py", line 7, in pick\nValueError: row 17 has 3 columns, not 5\n',
        None,
        "10.60.2.7",
    ),
    "ray's head of a line": (
        "(Worker pid=8123, ip=10.60.2.7) [rank5]: Traceback (most recent call last):\n"
        '(Worker pid=8123, ip=10.60.2.7) [rank5]:   File "/app/pick.py", line 7, in pick\n'
        "(Worker pid=8123, ip=10.60.2.7) [rank5]: ZeroDivisionError: division by zero\n",
        5,
        "10.60.2.7",
    ),
    "ray's actor": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: Trainer\n"
        "\tpid: 4411\n\tip: 10.60.2.8\nThe actor is dead because its worker process has died.\n",
        None,
        "10.60.2.8",
    ),
    "ray list nodes": (
        "Table:\n    NODE_ID       NODE_IP     IS_HEAD_NODE    STATE    STATE_MESSAGE      NODE_NAME\n"
        f" 0  {'11aa' * 14}  10.60.2.5  True   ALIVE                      10.60.2.5\n"
        f" 1  {'22bb' * 14}  10.60.2.6  False  DEAD   Health check failed  10.60.2.6\n",
        None,
        "10.60.2.6",
    ),
    "horovodrun's head of a line": (
        "".join(
            f"[1,2]<stderr>:{line}\n"
            for line in (
                "Traceback (most recent call last):",
                '  File "/app/fit.py", line 9, in <module>',
                "ZeroDivisionError: division by zero",
            )
        ),
        2,
        None,
    ),
    "kubectl with namespaces": (
        "NAMESPACE   NAME      READY   STATUS    RESTARTS     AGE   IP       NODE      NOMINATED NODE   READINESS GATES\n"
        "ml          train-1   0/1     Evicted   2 (3m ago)   3h    <none>   gpu-a02   <none>           <none>\n",
        None,
        "gpu-a02",
    ),
    "sacct with the nodes in front": (
        "NodeList|State|JobID|ExitCode\ngn07|COMPLETED|4242.batch|0:0\ngn08|NODE_FAIL|4242.0|1:0\n",
        None,
        "gn08",
    ),
    "sacct with commas": (
        "JobID,JobName,State,ExitCode,NodeList\n4242,fit,NODE_FAIL,1:0,gn10\n4242.0,python,CANCELLED,0:15,gn10\n",
        None,
        "gn10",
    ),
    "sacct -p without a code": ("JobID|NodeList|State|\n4242|gn11|NODE_FAIL|\n", None, "gn11"),
    "scontrol show job": (
        "JobId=4242 JobName=fit\n   UserId=ada(1001) GroupId=nlp(1001) MCS_label=N/A\n"
        "   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)\n   ReqNodeList=(null) ExcNodeList=(null)\n   NodeList=gn12\n"
        "JobId=4243 JobName=fit\n   JobState=RUNNING Reason=None Dependency=(null)\n   NodeList=gn13\n",
        None,
        "gn12",
    ),
    "slurmctld by the job's id": (
        "[2031-05-27T10:42:30.509] sched: Allocate JobId=4242 NodeList=gn14 #CPUs=2 Partition=gpu\n"
        "[2031-05-27T10:43:30.509] sched: Allocate JobId=4243 NodeList=gn15 #CPUs=2 Partition=gpu\n"
        "[2031-05-27T11:37:57.377] _job_complete: JobId=4242 WTERMSIG 9\n",
        None,
        "gn14",
    ),
    "kubectl with columns of one's own": (
        "POD       PHASE     REASON      NODE\nfit-0     Running   <none>      gpu-a03\nfit-1     Failed    OOMKilled   gpu-a04\n",
        None,
        "gpu-a04",
    ),
    "ray status": (
        "Healthy:\n 2 gpu_8\nPending:\n 10.60.2.7: gpu_8, setting-up\nRecent failures:\n gpu_8: RayletUnexpectedlyDied (ip: 10.60.2.9)\n",
        None,
        "10.60.2.9",
    ),
    "sacct -p": (
        "JobID|Partition|NodeList|State|ExitCode|\n4242|gpu|gn09|OUT_OF_MEMORY|0:125|\n",
        None,
        "gn09",
    ),
}


@pytest.mark.parametrize("name", WHERE)
def test_heads_and_tables_name_rank_and_node(diagnosis, name):
    text, rank, host = WHERE[name]
    found = diagnosis(text)
    assert [(one.rank, one.host) for one in found.culprits] == [(rank, host)]


def test_a_job_on_several_nodes_names_none_of_them(diagnosis):
    placed = "[2031-05-27T10:42:30.509] sched: Allocate JobId=7 NodeList=gn[14-15] #CPUs=2 Partition=gpu\n"
    ended = "[2031-05-27T11:37:57.377] _job_complete: JobId=7 WTERMSIG 9\n"
    assert all(one.host is None for one in diagnosis(placed + ended).culprits)


def test_the_reason_of_a_node_is_named_before_its_state(diagnosis):
    reason = "[2031-05-27T10:42:30.509] update_node: node gn14 reason set to: (Code:NoCapacity)Failure when resuming nodes\n"
    down = "[2031-05-27T10:42:30.509] update_node: node gn14 state set to DOWN\n"
    assert diagnosis(reason + down).first_error.text == reason.strip()


def test_a_statement_of_prterun_on_two_lines_is_one(diagnosis):
    found = diagnosis(
        "prterun noticed that process rank 5 with PID 4300 on node gn14 exited on\nsignal 9 (Killed).\n"
    )
    assert (found.culprits[0].rank, found.culprits[0].host) == (5, "gn14")
    assert found.first_error.text.endswith("exited on signal 9 (Killed).")


def test_a_plugin_of_slurm_that_refuses_is_no_proof_against_the_node(diagnosis):
    found = diagnosis(
        "slurmstepd-gn14: error: spank: required plugin spank_box.so: task_init() failed with rc=-1\n"
        "slurmstepd-gn14: error: Failed to invoke spank plugin stack\nsrun: error: gn14: task 0: Exited with exit code 1\n"
    )
    assert (found.category, found.action) == ("slurm_config", "unknown")
    assert found.confidence < 0.9
    assert {one.host for one in found.culprits} == {"gn14"}


def test_a_benchmark_that_gives_up_on_every_host_accuses_none(diagnosis):
    line = "gn{}: Test NCCL failure common.cu:959 'internal error / '\n"
    assert diagnosis(line.format(14)).culprits[0].host == "gn14"
    assert diagnosis(line.format(14) + line.format(15)).culprits == ()


def test_reasons_that_ansible_prints_in_json(diagnosis):
    found = diagnosis(
        '  "REASON               USER      TIMESTAMP           NODELIST",\n  "cloud_node_fail      slurm     2031-05-17T01:05:47 viz-1",\n'
    )
    assert (found.category, [one.host for one in found.culprits]) == ("node_down", ["viz-1"])


def test_slurmd_s_own_word_of_a_credential_is_quoted(diagnosis):
    found = diagnosis(
        "[2031-05-17T01:05:47.001] error: Credential signature check: Credential replayed\n"
        "srun: error: Application launch failed: Invalid job credential\n"
    )
    assert (found.category, found.first_error.line) == ("slurm_prolog", 1)
