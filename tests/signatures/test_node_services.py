"""What runs on a node beside the job, from end to end: health checks, services, mounts, containers, monitors."""

import pytest

CASES = {
    "a-core-that-is-still-hot": (
        "mce: CPU3: Core temperature/speed normal\n"
        "mce: CPU3: Core temperature above threshold, cpu clock throttled (total events = 2)\n",
        "thermal_throttle",
    ),
    "a-core-that-is-hot-again-and-again": (
        20
        * (
            "mce: CPU3: Core temperature above threshold, cpu clock throttled (total events = 7)\n"
            "mce: CPU3: Core temperature/speed normal\n"
        ),
        "thermal_throttle",
    ),
    "ibstatus-shows-a-port-down": ("Infiniband device 'mlx5_3' port 1 status:\n\tstate:\t\t 1: DOWN\n", "nic_down"),
    "container-store-is-full": (
        "mkdir /var/lib/containers/storage/overlay/7d6/merged: no space left on device\n",
        "disk_full",
    ),
    "gaudi-does-not-start": (
        "[   72.993087] habanalabs hl2: Failed to communicate with Device CPU (CPU-CP timeout)\n",
        "driver_error",
    ),
    "gaudi-is-taken": ("RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\n", "gpu_busy"),
    "gpus-are-missing": ("ERROR:  nhc:  Health check failed:  Check check_nv_gpu_count 8 returned 1\n", "gpu_missing"),
    "sinfo-tells-of-the-check": ("NHC: check_gpu_count root   2031-09-24T18:02:11 gpu07\n", "gpu_missing"),
    "port-is-not-active": ("ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port mlx5_1:1 is ACTIVE\n", "nic_down"),
    "check-does-not-end": ("Jan  2 03:04:05 n7 nhc[77]: Health check failed:  Script timed out.\n", "node_down"),
    "monitor-tells-of-an-xid": ("XID 79(GPU has fallen off the bus) detected on PCI:0000:ae:00\n", "xid_79"),
    "check-finds-an-xid": ("Found XID errors: 63\nNode Health Check failed.  Check check_xid_errors returned 1\n", "xid_63"),
    "munge-does-not-start": (
        "Jan  2 03:04:05 n5 systemd[1]: munge.service: Control process exited, code=exited status=1\n",
        "slurm_config",
    ),
    "storage-does-not-start": (
        "Jan  2 03:04:05 n5 beegfs-client[7]: mount: /mnt/lake: mount(2) system call failed: Operation canceled.\n"
        "Jan  2 03:04:05 n5 systemd[1]: beegfs-client.service: Main process exited, code=exited, status=32/n/a\n",
        "filesystem_error",
    ),
    "mount-times-out": ("mount.nfs: Connection timed out\n", "filesystem_error"),
    "nobody-behind-the-mount": ("df: '/lake/run': Transport endpoint is not connected\n", "filesystem_error"),
    "bind-path-is-not-there": (
        "FATAL:   container creation failed: mount /lake->/lake error: while mounting /lake: mount source /lake doesn't exist\n",
        "config_error",
    ),
    "other-file-systems": ("bcachefs (0b127c0d-3a35): fatal error - emergency read only\n", "storage_io"),
    "wall-clock-is-over": ("MOAB_INFO:  job exceeded wallclock limit\n", "time_limit"),
    "wall-time-and-deleted": (
        "PBS_Server.7;Job;77.s1;Job deleted at request of root@s1\nMOAB_INFO:  job exceeded wallclock limit\n",
        "time_limit",
    ),
    "somebody-deleted-it": ("PBS_Server.7;Job;77.s1;Job deleted at request of root@s1\n", "terminated"),
    "driver-does-not-load": ("ERROR: Unable to load the kernel module 'nvidia.ko'.  This happens most frequently when\n", "driver_error"),
    "shell-cannot-read": ("grep: syslog: Input/output error\n", "filesystem_error"),
    "cloud-has-none": ("Got return codes 'VM_MIN_COUNT_NOT_REACHED', 'QUOTA_EXCEEDED' in us-central1-a\n", "failed_scheduling"),
    "cloud-has-none-and-raises": (
        "x.exceptions.CapacityError: Failed. Reason: CapacityError: Unable to provision requested ML compute capacity.\n",
        "failed_scheduling",
    ),
    "nodes-pre-empted": ("UserError: job failed. PreemptionError: Nodes of this job got pre-empted.\n", "terminated"),
    "no-rdma-device": ("librdmacm: Fatal: no RDMA devices found\n", "nic_down"),
    "bricks-are-away": (
        "[2031-09-20 09:12:50.1] E [MSGID: 108006] [afr-common.c:5313:afr_notify] 0-v-replicate-0: All subvolumes are down.\n",
        "nfs_lustre_stall",
    ),
    "npu-does-not-answer": ("        Device[1] lost heartbeat.[FUNC:SyncTask][FILE:direct_hwts_engine.cc]\n", "npu_heartbeat"),
    "slurm-daemon-without-its-name": ("[2031-05-16T20:40:39.100] fatal: mkdir(/var/spool/x): No such file or directory\n", "slurm_config"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_a_node_says_has_its_category(diagnosis, name):
    text, category = CASES[name]
    assert diagnosis(text).category == category


CULPRITS = {
    "sinfo": (CASES["sinfo-tells-of-the-check"][0], "gpu07"),
    "ray": (
        "The node with node id: 8f00ab and address: 10.0.0.7 and node name: 10.0.0.7 has been marked dead because the"
        " detector has missed too many heartbeats from it.\n",
        "10.0.0.7",
    ),
    "resume": (
        "[2031-12-03T17:45:58.897] node c-22 not resumed by ResumeTimeout(2400) - marking down\n",
        "c-22",
    ),
    "amdgpu": ("amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init\n", "0000:03:00.0"),
    "card": (
        "r8125 0000:22:04.0 eth4: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5010 ms\n",
        "0000:22:04.0",
    ),
    "salloc": ("salloc: error: Node failure on worker-1\n", "worker-1"),
    "pod": ("Node:                gpu-7/10.0.0.7\nReason:              Evicted\n", "gpu-7"),
    "gpu-of-a-part": (
        "GPU 00000000:2D:00.0\n        HW Slowdown                 : Active\n            HW Thermal Slowdown     : Active\n",
        "00000000:2D:00.0",
    ),
    "service": (CASES["munge-does-not-start"][0], "n5"),
}


@pytest.mark.parametrize("name", CULPRITS)
def test_the_subject_of_a_line_is_named(diagnosis, name):
    text, culprit = CULPRITS[name]
    found = diagnosis(text).culprits
    assert culprit in {who for one in found for who in (one.host, one.device)}


HEALTHY = {
    "a-probe-that-is-asked-again": "  Warning  Unhealthy  4m (x14 over 7m)  kubelet  Readiness probe failed:"
    " cat: can't open '/tmp/ready': No such file or directory\n",
    "a-register-that-is-not-there": "[  5.868] NVRM: gpuHandleSanityCheckRegReadError_GH100: Possible bad register read:"
    " addr: 0x920bc, error code: NV_PPRIV_SYS_PRI_ERROR_CODE\n",
    "a-mount-that-is-skipped": "WARNING: skipping mount of /lake: stat /lake: no such file or directory\nstep 10 loss 2.3\n",
    "a-check-that-finds-nothing": "Found XID errors: 0\n20310612 18:47:38 [slurm] /usr/libexec/nhc/node-mark-online n1\n",
    "a-notice-that-only-says-what-might-be": "coordination_service.cc:954] heartbeat timeout. This indicates that the remote"
    " task has failed, got preempted, or crashed unexpectedly.\nstep 7 loss 1.2\nstep 8 loss 1.1\n",
    "a-limit-that-is-only-told": "walltime limit: 24:00:00\nresources_used.walltime=02:00:25\nstep 7 loss 1.2\n",
    "a-core-that-was-hot-for-a-moment": "mce: CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)\n"
    "mce: CPU3: Core temperature/speed normal\n",
    "a-disk-that-is-set-up": "nvme nvme1: resetting controller\nnvme nvme1: 64/0/0 default/read/poll queues\n",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_wrong_with_the_node(diagnosis, name):
    assert diagnosis(HEALTHY[name]).category == "none"
