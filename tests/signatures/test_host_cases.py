"""Host logs from end to end: what kernel, scheduler and tool lines are held to mean, and healthy ones that scare."""

import pytest

CASES = {
    "memory-of-a-gpu-days-after-programs-faults": (
        "[Wed Jul 30 23:14:18 2031] NVRM: Xid (PCI:0000:05:00): 43, pid=811, name=python3, Ch 00000008\n"
        "[Sat Aug  9 13:32:56 2031] NVRM: Xid (PCI:0000:08:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No, D-RST: No\n",
        "xid_94",
    ),
    "the-stack-of-a-task-whose-first-line-is-cut-off": (
        "[  +0.000049] task:python3.11      state:D stack:    0 pid:88 ppid: 77 flags:0x00000002\n[  +0.000006] Call Trace:\n"
        "[  +0.000005]  mutex_lock+0x34/0x40\n[  +0.000037]  uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]\n",
        "hung_task",
    ),
    "channels-that-name-the-fault-before": (
        "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=88, name=python3, Ch 00000001 caused by previous Xid 149\n"
        "kernel: NVRM: Xid (PCI:0000:ed:00): 45, pid=89, name=python3, Ch 0000000c caused by previous Xid 149\n",
        "xid_149",
    ),
    "gaudi-beats-no-more": ("[ 5000.1] habanalabs hl3: Device heartbeat failed! PCI link is not accessible\n", "gpu_fault"),
    "tpu-chip-in-a-slice": (
        "completed step: 118, seconds: 2.4, loss: 3.8\n"
        "E0511 18:18:50.796852     915 tpunetd_client.cc:311] Detected failure SLICE_FAILURE_CHIP_DRIVER_ERROR in session e6; Start failure handling\n",
        "gpu_fault",
    ),
    "bmc-saw-a-processor-stop": (
        "  88 | 08/31/2031 | 02:58:51 | System Firmware Progress #0x05 | System boot initiated | Asserted\n"
        "  89 | 08/31/2031 | 06:20:30 | Processor #0xc9 | IERR | Asserted\n",
        "mce_edac",
    ),
    "record-of-a-lost-node": ("JobID|JobName|State|ExitCode\n77|train|NODE_FAIL|1:0\n77.0|python|CANCELLED|0:15\n", "slurm_node_fail"),
    "slurmd-without-its-cgroups": (
        "[2031-07-09T09:55:38.584] error: cgroup namespace 'freezer' not mounted. aborting\n"
        "[2031-07-09T09:55:38.584] error: cannot create proctrack context for proctrack/cgroup\n",
        "slurm_config",
    ),
    "task-prolog-is-not-there": (
        "slurmstepd-g3: error: run_command: slurm task_prolog can not be executed (/opt/scripts/task-prolog.sh) No such file or directory\n"
        "slurmstepd-g3: error: pyxis: couldn't start container\nsrun: error: g3: task 0: Exited with exit code 1\n",
        "slurm_prolog",
    ),
    "amd-ras-before-the-reset": (
        "[7.1] amdgpu 0000:83:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!\n"
        "[7.2] amdgpu 0000:83:00.0: amdgpu: GPU reset begin!\n",
        "ecc_uncorrectable",
    ),
    "driver-container-without-kernel-sources": (
        "Checking NVIDIA driver packages...\nW: GPG error: https://mirror.example Release: The following signatures couldn't be verified\n"
        "Resolving Linux kernel version...\nCould not resolve Linux kernel version\nStopping NVIDIA persistence daemon...\n",
        "driver_error",
    ),
    "amd-page-fault-before-the-ring": (
        "[7.1] amdgpu 0000:83:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:88 vmid:6 pasid:9, for process fit pid 71)\n"
        "[7.2] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 timeout, but soft recovered\n",
        "gpu_fault",
    ),
    "interface-of-a-card-is-not-made": (
        "Nov  7 01:12:58 g7 kernel: mlx5_core 0000:01:00.0: mlx5e_create_mdev_resources:104:(pid 1): alloc td failed, -11\n"
        "Nov  7 01:12:58 g7 kernel: mlx5_0, 1: ipoib_intf_alloc failed -11\n",
        "nic_down",
    ),
    "docker-saw-memory-run-out": (
        "2031-05-04T18:05:45.011072877-05:00 container oom 29d72966e0beb17d (image=fit, name=fit-1)\n",
        "cgroup_oom",
    ),
    "login-of-a-launcher": (
        'Traceback (most recent call last):\n  File "/opt/launch/runner.py", line 7, in main\n    check_call(cmd)\n'
        "subprocess.CalledProcessError: Command 'ssh -o BatchMode=yes g8 hostname' returned non-zero exit status 255.\n",
        "launcher_config",
    ),
    "pyxis-has-no-folder": (
        "[2031-02-03T04:05:06.789] [77.0] error: pyxis: couldn't mkdir /run/pyxis/20001: No such file or directory\n"
        "[2031-02-03T04:05:06.789] [77.0] error: spank: required plugin spank_pyxis.so: init_post_opt() failed with rc=-1\n",
        "slurm_config",
    ),
    "kubelet-unwell-again": (
        'kubelet[99]: "Successfully registered node" node="g7"\nkubelet[99]: skipping pod synchronization - PLEG is not healthy: pleg was last seen active 3m2s ago\n',
        "node_not_ready",
    ),
    "a-file-of-crashes": (
        "[ 641.2] ring_solver[811]: segfault at 7f10 ip 00007f1 sp 00007f2 error 4 in libring.so.2[7f0+8fd000]\n"
        "[ 702.8] ring_solver[944]: segfault at 7f18 ip 00007f1 sp 00007f2 error 6 in libring.so.2[7f0+8fd000]\n",
        "segfault",
    ),
    "gpu-lost-after-a-link-that-came-back": (
        "[7001.1] mlx5_core 0000:5c:00.0 mlx5_2: Port: 1 Link DOWN\n[7090.1] mlx5_core 0000:5c:00.0 mlx5_2: Port: 1 Link ACTIVE\n"
        "[7801.1] NVRM: The NVIDIA GPU 0000:3b:00.0\n               NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n",
        "gpu_missing",
    ),
    "lockup-of-an-array-that-goes-on": (
        "[811.1] md/raid:md7: Disk failure on dm-3, disabling device.\n[811.2] md/raid:md7: Operation continuing on 2 devices.\n"
        "[840.1] watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [md7_raid5:611]\n",
        "soft_lockup",
    ),
    "array-that-goes-on": ("[811.1] md/raid1:md7: Disk failure on sdc1, disabling device.\n", "storage_io"),
    "nodes-come-back-smaller-than-configured": (
        "[2031-03-04T05:06:07.188] error: Nodes g[01-02] not responding\n[2031-03-04T05:16:07.188] Node g02 now responding\n"
        "[2031-03-04T05:16:07.188] error: Setting node g02 state to INVAL with reason:Low socket*core*thread count, Low CPUs\n"
        "[2031-03-04T05:16:07.189] drain_nodes: node g02 state set to DRAIN\n"
        "[2031-03-04T05:16:07.189] error: _slurm_rpc_node_registration node=g02: Invalid argument\n",
        "slurm_config",
    ),
    "nodes-come-back-too-late": (
        "[2031-03-04T05:06:07.188] error: Nodes g[01-02] not responding, setting DOWN\n"
        "[2031-03-04T05:06:07.190] requeue job JobId=77 due to failure of node g02\n[2031-03-04T05:16:07.188] Node g02 now responding\n",
        "slurm_node_fail",
    ),
    "hccl-port-taken": (
        "RuntimeError: create_config:x.ts:9 HCCL function error: hcclCommInitRootInfoConfig(n, &r, k, c, &h), error code is 7\n"
        "[ERROR] 2031-02-03-10:20:30 (PID:811, Device:0, RankID:-1) ERR02200 DIST call hccl api failed.\n"
        "[PID: 811] 2031-02-03-10:20:30.111.222 Bind_Failed(EJ0003): Failed to bind the IP port. Reason: The IP address and port have been bound already.\n",
        "port_in_use",
    ),
    "device-plugin-without-nvml": (
        "2031/02/03 04:05:06 Initializing NVML.\n2031/02/03 04:05:06 Failed to initialize NVML: could not load NVML library.\n"
        "2031/02/03 04:05:06 If this is a GPU node, did you set the docker default runtime to `nvidia`?\n"
        "2031/02/03 04:05:06 Error: failed to initialize NVML: could not load NVML library\n",
        "cuda_init_error",
    ),
    "limit-told-by-its-use-only": ("Mar 29 07:24:44 n11 kernel: memory: usage 2097152kB, limit 2097152kB, failcnt 9\n", "cgroup_oom"),
    "limit-told-by-the-trace-only": (
        "[71.1] dd invoked oom-killer: gfp_mask=0x101cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=936\n[71.2] Call Trace:\n"
        "[71.3]  out_of_memory+0x3dc/0x5c0\n[71.4]  try_charge_memcg+0x827/0xa90\n",
        "cgroup_oom",
    ),
    "few-corrected-errors-with-registers": (
        "kernel: EDAC skx MC1: HANDLING MCE MEMORY ERROR\nkernel: EDAC skx MC1: TSC 0\nkernel: EDAC skx MC1: ADDR aa30b0000\n"
        "kernel: EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0)\n",
        "mce_edac",
    ),
    "bond-that-comes-back": (
        "[900.1] storage: link status down for interface eno4, disabling it in 200 ms\n[999.9] storage: link status definitely up for interface eno4\n",
        "nic_link_flap",
    ),
    "card-hangs": ("[901.2] i40e 0000:3e:00.0 eno2: tx_timeout: VSI_seid: 390, Q 5, NTC: 0x1\n", "nic_down"),
    "iommu-refuses": ("[902.2] DMAR: [DMA Write] Request device [3c:00.0] fault addr aee00000 [fault reason 05] PTE Write access is not set\n", "p2p_failure"),
    "link-that-does-not-hold": (
        "[900.1] ice 0000:32:00.0 ens2f0: NIC Link is Down\n[907.1] ice 0000:32:00.0 ens2f0: NIC Link is up 100 Gbps Full Duplex\n"
        "[999.1] ice 0000:32:00.0 ens2f0: NIC Link is Down\n",
        "nic_link_flap",
    ),
    "slurmd-without-its-plugin": (
        "[2031-10-16T10:42:01.138] error: cannot find cgroup plugin for cgroup/v2\n[2031-10-16T10:42:01.139] error: slurmd initialization failed\n",
        "slurm_config",
    ),
    "node-without-infiniband": ("Fatal error:  device '*': sys files not found (/sys/class/infiniband/*/ports)\n", "nic_down"),
    "sinfo-has-it-down": ("n07      1     main*       down*   12   12:1:1  64267        0      1   (null) Not responding\n", "node_down"),
    "prolog-hangs": ("slurmstepd: error: Prolog hung on node n3\n", "slurm_prolog"),
    "driver-words-that-nobody-knows": ("bnxt_en 0000:41:00.0: QPLIB: cmdq[0xa1]=0x9 status 0x3\n", "nic_down"),
    "card-without-driver": ("mlx5_core 0000:51:00.0: handle_hca_cap failed\nmlx5_core: probe of 0000:51:00.0 failed with error -22\n", "nic_down"),
    "gpu-wants-reset": ("NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x62) returned from a @ b.c:7\n", "gpu_fault"),
    "firmware-of-gpu-silent": ("2031-01-02T03:04:05+0200 n7 kernel: NVRM: _kgspRpcRecvPoll: GSP RPC timeout, function 76\n", "driver_error"),
    "xid-after-driver-words": (
        "NVRM: _kgspRpcRecvPoll: GSP RPC timeout, function 76\nNVRM: Xid (PCI:0000:16:00): 119, pid=7, Timeout after 6s of waiting\n",
        "xid_119",
    ),
    "mcelog-decodes": ("Hardware event. This is not a software error.\nMCE 0\nUncorrected error\nProcessor context corrupt\n", "mce_edac"),
    "lustre-cannot-mount": ("LustreError: (super25.c:9:fill_super()) llite: Unable to mount <unknown>: rc = -22\n", "nfs_lustre_stall"),
    "slurm-does-not-like-its-file": ("slurmctld[77]: error: Parse error in file /etc/slurm/slurm.conf line 9\n", "slurm_config"),
    "pod-without-its-map": ("Warning  Failed  9s (x2 over 30s)  kubelet  Error: configmap \"tokens\" not found\n", "launcher_config"),
    "carrier-comes-and-goes": (
        "Mar 17 06:18:01 n4 systemd-networkd[98]: ib2: Lost carrier\nMar 17 06:18:09 n4 systemd-networkd[98]: ib2: Gained carrier\n",
        "nic_link_flap",
    ),
    "infiniband-port-down": ("Mar 14 05:03:41 n9 kernel: mlx5_core 0000:4b:00.0 mlx5_2: Port: 1 Link DOWN\n", "nic_down"),
    "firmware-of-card-stops": (
        "mlx5_core 0000:4b:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count\n",
        "nic_down",
    ),
    "pods-preempted": ("  Normal  Preempted  9s  default-scheduler  Preempted by pod 0d3b on node w-7\n", "pod_preempted"),
    "pod-evicted": ("Reason:   Evicted\nMessage:  The node was low on resource: memory.\n", "pod_evicted"),
    "evicted-then-not-placed": (
        "Warning  FailedScheduling  9s  default-scheduler  0/4 nodes are available: 4 node(s) had untolerated taint\n"
        "9s  Warning  Evicted  pod/a-1  Evict batch pod due to memory pressure\n",
        "pod_evicted",
    ),
    "node-not-ready": ("w-01   NotReady   <none>   10d   v1.30.2\n", "node_not_ready"),
    "gang-not-whole": ("3/4 tasks in gang unschedulable: pod group is not ready, 1 Pending, 4 minAvailable\n", "failed_scheduling"),
    "container-over-limit": ("      Reason:       OOMKilled\n      Exit Code:    137\n", "cgroup_oom"),
    "slurm-out-of-memory": ("slurmstepd: error: Detected 3 oom_kill events in StepId=9.0. Some of the step tasks have been OOM Killed.\n", "slurm_oom"),
    "slurm-lost-a-node": (
        "srun: error: Node failure on n12\nslurmstepd: error: *** STEP 8.0 ON n11 CANCELLED AT 2031-01-02T03:04:05 DUE TO NODE FAILURE,"
        " SEE SLURMCTLD LOG FOR DETAILS ***\nsrun: error: n11: tasks 0-7: Terminated\n",
        "slurm_node_fail",
    ),
    "slurm-time-is-up": ("slurmctld: Time limit exhausted for JobId=4242\n", "slurm_time_limit"),
    "slurm-prolog": ("slurmd: error: [job 77] prolog failed status=1:0\n", "slurm_prolog"),
    "slurm-refuses": ("sbatch: error: Batch job submission failed: Invalid partition name specified\n", "slurm_config"),
    "somebody-cancelled": ("slurmstepd: error: *** JOB 34 ON n7 CANCELLED AT 2031-01-02T03:04:05 ***\n", "terminated"),
    "link-then-gpu": (
        "[9.1] pcieport 0000:15:01.0: DPC: containment event, status:0x1f01 source:0x0000\n"
        "[9.4] NVRM: Xid (PCI:0000:16:00): 79, pid=0, GPU has fallen off the bus.\n",
        "pcie_aer",
    ),
    "gpu-without-firmware": ("kernel: [ 5.2] NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)\n", "gpu_missing"),
    "gpu-lost-in-tool": ("Unable to determine the device handle for GPU 0000:5A:00.0: GPU is lost.\n", "gpu_missing"),
    "driver-and-library": ("Failed to initialize NVML: Driver/library version mismatch\n", "driver_mismatch"),
    "xid-45-alone": ("NVRM: Xid (PCI:0000:16:00): 45, pid=18, name=python3, Ch 00000001\n", "xid_45"),
    "disk-goes": (
        "nvme nvme4: I/O tag 7 (1007) opcode 0x2 (I/O Cmd) QID 3 timeout, reset controller\n"
        "nvme nvme4: Disabling device after reset failure: -19\nXFS (nvme4n1): metadata I/O error in \"x\" at daddr 0x10 len 8 error 5\n",
        "storage_io",
    ),
    "storage-stalls-tasks": (
        "[100.5] nfs: server nas7 not responding, still trying\n[250.1] INFO: task python3:88 blocked for more than 120 seconds.\n",
        "nfs_lustre_stall",
    ),
    "bad-dimm-looks-like-shm": ("Memory failure: 0x77: Sending SIGBUS to python3:42 due to hardware memory corruption\n", "mce_edac"),
    "machine-check-panics": (
        "mce: [Hardware Error]: CPU 7: Machine Check Exception: 5 Bank 4: be00000000010134\nKernel panic - not syncing: Fatal machine check\n",
        "mce_edac",
    ),
    "cpu-stuck": ("watchdog: BUG: soft lockup - CPU#7 stuck for 41s! [pt_data_pin:77]\n", "soft_lockup"),
    "kernel-bug": ("kernel: BUG: kernel NULL pointer dereference, address: 0000000000000018\n", "kernel_bug"),
    "ras-of-bluegene": ("- 11178 2031.06.03 R02-M1 2031-06-03 R02-M1-N0-C:J12-U11 RAS KERNEL FATAL data TLB error interrupt\n", "kernel_fault"),
    "hot-gpu": ("        HW Slowdown        : Active\n            HW Thermal Slowdown       : Active\n", "thermal_throttle"),
    "narrow-link": ("5d:00.0 3D controller: NVIDIA GA100 (rev a1)\n\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)\n", "pcie_link_downgrade"),
    "fabric-manager-stops": ("[ERROR] detected number of NVSwitches don't match with any supported system topology, aborting fabric manager\n", "fabric_manager"),
    "notify-wait": ("EI0002: The wait execution of the Notify register times out. Reason: remote rank [5]\n", "npu_hccl"),
    "heartbeat": ("[INFO] HCCL(9,python) [heartbeat.cc:536][3][HCCL_TRACE]rank [10.1.0.9/2]: rank [10.1.0.7/5] status[LOST] by rank [10.1.0.7/6]\n", "npu_heartbeat"),
    "no-id-left-for-a-cgroup": ("slurmstepd: error: unable to create cgroup '/sys/fs/cgroup/memory/slurm/uid_7' : No space left on device\n", "host_limit"),
    "batch-daemon-fails": (
        "11/20/2031 12:07:14.476;01;   pbs_mom.77;Svr;pbs_mom;LOG_ERROR::cg_create, failed to create task cgroups: 5\n",
        "slurm_prolog",
    ),
    "kubelet-has-not-what-was-promised": ('"reason":"OutOfnvidia.com/gpu",\n', "failed_scheduling"),
    "webhook-refuses": (
        'Warning  FailedCreatePod  8s  pytorchjob-controller  Error creating: admission webhook "p.example.io" denied the request: no\n',
        "launcher_config",
    ),
    "no-healthy-device": (
        "Message:  Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices amd.com/gpu\n",
        "gpu_missing",
    ),
    "cloud-takes-the-machine": ("Jan  2 03:04:05 spot-1 agent 2031/01/02 03:04:05 metadata says termination is imminent\n", "terminated"),
    "batch-host-taken": ("Status Reason: Host EC2 (instance i-0abc) terminated.\n", "terminated"),
    "out-of-memory-said-twice": (
        "slurmstepd: error: Exceeded job memory limit at some point.\nsrun: error: n7: task 0: Out Of Memory\n",
        "slurm_oom",
    ),
    "munge-never-answers": ("slurmctld: debug:  auth/munge: Munge encode failed: Failed to connect (retrying ...)\n" * 9, "slurm_config"),
}  # fmt: skip


# The line that a report begins with, and whom it is about.
FIRST = {
    "disk": ("nvme nvme3: I/O 7 QID 2 timeout, aborting\nnvme nvme3: I/O 7 QID 2 timeout, reset controller\n", "timeout, aborting", None),
    "two-disks": ("nvme nvme1: I/O 7 QID 2 timeout, aborting\nnvme nvme3: I/O 9 QID 2 timeout, reset controller\n", "reset controller", None),
    "firmware": (
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4\n{1}[Hardware Error]: event severity: fatal\n",
        "Generic Hardware Error Source",
        None,
    ),
    "container": (
        "slurmstepd: error: pyxis: container start failed with error code: 1\nslurmstepd: error: pyxis: printing contents of log file ...\n"
        "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/sh: No such file or directory\n"
        "slurmstepd: error: pyxis: couldn't start container\nsrun: error: n3: task 1: Exited with exit code 1\n",
        "enroot-switchroot",
        None,
    ),
    "gpu-named-below": (
        "[  9.609564] NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\n[  9.610907] NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x6)\n",
        "Cannot initialize GSP",
        "0000:98:00.0",
    ),
    "kubelet-of": ("  Warning  Evicted  18m  kubelet, gpu-7  The node was low on resource: memory.\n", "Evicted", "gpu-7"),
    "slurm-node": (
        "Mar  3 03:01:07 head slurmctld[8]: slurmctld: error: Setting node g12 state to INVAL with reason:gres/gpu count reported lower than"
        " configured (3 < 4)\n",
        "Setting node",
        "g12",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_a_report_begins_with_its_first_line(diagnosis, name):
    text, first, culprit = FIRST[name]
    found = diagnosis(text)
    assert first in found.first_error.text
    if culprit:
        assert culprit in {name for one in found.culprits for name in (one.host, one.device)}


@pytest.mark.parametrize("name", CASES)
def test_a_host_log_has_its_category(diagnosis, name):
    text, category = CASES[name]
    assert diagnosis(text).category == category


HEALTHY = {
    "a-driver-that-says-it-does-not-matter": "NVRM: RmFetchGspRmImages: Failed to load gsp_log_*.bin, no GSP-RM logs will be printed (non-fatal)\n",
    "a-bmc-that-lists-boots": (
        "   1 | 01/01/2031 | 00:15:20 | System Firmware Progress #0x05 | Motherboard initialization | Asserted\n"
        "   2 | 01/01/2031 | 00:16:02 | Temperature #0x30 | Upper Critical going high | Deasserted\n"
    ),
    "a-kubelet-that-starts": (
        'kubelet[99]: E0203 04:05:06.000001 99 kubelet.go:28] "Container runtime network not ready" networkReady="cni plugin not initialized"\n'
        'kubelet[99]: I0203 04:05:26.000001 99 kubelet_node_status.go:79] "Successfully registered node" node="g7"\n'
    ),
    "a-start-that-did-not-wait-for-the-network": "n7 systemd[1]: systemd-networkd-wait-online.service: Main process exited, code=exited, status=1/FAILURE\n",
    "nodes-away-and-back": (
        "[2031-03-04T05:06:07.188] error: slurm_msg_sendto: address:port=10.9.8.7:6818 msg_type=1008: Unexpected missing socket error\n"
        "[2031-03-04T05:07:07.188] error: Nodes g[01-02] not responding, setting DOWN\n"
        "[2031-03-04T05:37:07.188] Node g02 now responding\n[2031-03-04T05:37:07.188] node g02 returned to service\n"
        "[2031-03-04T05:37:07.189] Node g01 now responding\n[2031-03-04T05:37:07.189] node g01 returned to service\n"
    ),
    "links-in-the-middle-of-a-start": (
        "Feb  3 04:05:10 n7 kernel: mlx5_core 0000:5c:00.0 mlx5_2: Port: 1 Link DOWN\n"
        "Feb  3 04:05:31 n7 systemd[1]: Started systemd-journald.service - Journal Service.\n"
        "Feb  3 04:05:31 n7 kernel: mlx5_core 0000:5c:00.0 mlx5_2: Port: 1 Link ACTIVE\n"
    ),
    "an-init-container-that-waited": (
        "118s  Warning  BackOff  pod/checker-x1  Back-off restarting failed container driver-check in pod checker-x1_ops(9a0)\n"
        "90s  Normal  Started  pod/checker-x1  Started container checker\n"
    ),
    "a-daemon-of-the-desktop-crashes": "".join(
        f"[{n}.1] audit: profile {n} loaded for a service of this node\n" for n in range(900)
    )
    + "[901.2] panel-applet[70]: segfault at 0 ip 00007f sp 00007f error 4 in libpanel.so[7f0+9000]\n",
    "a-step-that-filled-its-memory-with-files": "52428800 bytes (52 MB) copied, 0.4 s\nslurmstepd: Exceeded step memory limit at some point.\n",
    "a-controller-that-asks-munge-again": "slurmctld: debug:  auth/munge: Munge encode failed: Failed to connect (retrying ...)\n",
    "ports-without-a-cable-at-boot": """\
Mar  3 03:01:07 n07 kernel: Linux version 6.8.0-31-generic (buildd@lcy02) (gcc 13.2.0) #31-Ubuntu SMP
Mar  3 03:01:19 n07 kernel: igb 0000:04:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps Full Duplex
Mar  3 03:01:20 n07 kernel: be2net 0000:f3:00.1 enp243s0f1: Link is Down
""",
    "daemons-that-complain": """\
Mar  3 03:01:07 n07 systemd[1]: Started Session 12 of user root.
Mar  3 03:02:07 n07 modprobe[219]: modprobe: FATAL: Module nvme-tcp not found in directory /lib/modules/6.8.0
Mar  3 03:03:07 n07 sshd[402]: error: kex_exchange_identification: Connection closed by remote host
Mar  3 03:04:07 n07 containerd[131]: time="2031-03-03T03:04:07Z" level=error msg="failed to load cni during init, no network config found"
""",
    "a-firewall-that-complains": "Mar  3 03:04:07 n1 firewalld: ERROR: ALREADY_ENABLED: '988:tcp' already in 'public'\n",
    "a-step-without-affinity": "slurmstepd: error: task/cgroup: plugin not compiled with hwloc support, skipping affinity.\nn1\nn2\n",
    "a-monitor-that-says-what-it-looks-for": "I1213 11:02:03.3 1 log_monitor.go:78] Rules:[{Reason:KernelOops Pattern:BUG: unable to"
    " handle kernel NULL pointer dereference at .*} {Reason:OOMKilling Pattern:Killed process \\d+ (.+) total-vm:\\d+kB}]\n",
    "tests-that-fail-on-purpose": """\
test_nan (tests.TestLoss) ... ERROR: loss is nan, stopping
ok
----------------------------------------------------------------------
Ran 1 test in 0.412s

OK
""",
    "a-kernel-that-complains": "[  412.123456] ACPI Error: No handler for Region [SYSI] (00000000dd3d6b3d) [IPMI] (20230331/evregion-132)\n"
    "[  413.123456] Error: Driver 'pcspkr' is already registered, aborting...\n",
    "boot": """\
[    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/md0 errors=remount-ro
[    0.004] ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PC02], AE_NOT_FOUND (20240827/dswload2-162)
[    0.005] ACPI Error: Aborting method \\_SB.GPLD due to previous error (AE_NOT_FOUND) (20240827/psparse-529)
[    0.006] [Firmware Bug]: TSC ADJUST differs within socket(s), fixing all errors
[    0.008] APIC error on CPU0: 00(40)
[    0.009] mce: CPU supports 31 MCE banks
[    0.010] EDAC MC: Ver: 3.0.0
[    0.120] pci 0000:00:1c.0: BAR 13: failed to assign [io  size 0x1000]
[    0.130] pci 0000:3a:05.0: bridge window [io  size 0x1000]: failed to assign
[    0.200] pcieport 0000:00:1c.0: AER: enabled with IRQ 130
[    0.210] pcieport 0000:00:1c.0: pciehp: Slot #3 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+ Interlock-
[    0.220] pcieport 0000:00:1c.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 6
[    0.300] acpi PNP0A08:00: _OSC: platform does not support [SHPCHotplug PME AER LTR DPC]
[    0.400] ERST: Error Record Serialization Table (ERST) support is initialized.
[    0.500] ata2: SATA link down (SStatus 0 SControl 300)
[    0.600] EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0 (INTERRUPT)
[    0.700] random: crng init done
[    1.100] systemd[1]: Failed to look up module alias 'autofs4': Function not implemented
[    1.200] EXT4-fs (md0): mounted filesystem with ordered data mode. Opts: errors=remount-ro. Quota mode: none.
[    1.300] XFS (nvme1n1): Ending clean mount
[    2.100] blk_update_request: I/O error, dev loop7, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0
[    3.100] nvidia: loading out-of-tree module taints kernel.
[    3.200] nvidia: module verification failed: signature and/or required key missing - tainting kernel
[    3.300] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  575.57.08
[    4.100] nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 12 Minion Link DLREQ interrupt
[    5.100] mlx5_core 0000:41:00.0: Port module event: module 0, Cable plugged
[    5.200] mlx5_core 0000:41:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)
[    5.300] mlx5_core 0000:41:00.1 eth3: Link down
[    5.900] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT
[    6.100] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE
[   16.900] rcu: RCU event tracing is enabled.
[   17.900] perf: interrupt took too long (2514 > 2500), lowering kernel.perf_event_max_sample_rate to 79500
""",
    "a-monitor-that-asks-too-much": (
        "mlx5_core 0000:4b:00.0: mlx5_cmd_out_err:811:(pid 14): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5)\n"
        * 3
    ),
    "idle-gpus": """\
GPU 00000000:1B:00.0
    Performance State                     : P8
    Clocks Event Reasons
        Idle                              : Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Not Active
    Remapped Rows
        Pending                           : No
        Remapping Failure Occurred        : No
            SRAM Uncorrectable Parity     : 0
    GPU Recovery Action                   : None
    Fabric
        State                             : Completed
        Status                            : Success
""",
    "chatty-firmware": "bnxt_en 0000:21:00.1 ens2: hwrm req_type 0x53 seq id 0x6fca error 0x2\nnvme nvme0: 32/0/0 default/read/poll queues\n"
    "NVRM: nvCheckOkFailedNoLog: Check failed: Call not supported [NV_ERR_NOT_SUPPORTED] (0x00000056)\n",
    "idle-links": "1b:00.0 3D controller: NVIDIA GH100 (rev a1)\n\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16\n",
    "slurm-says-nothing-bad": "slurmctld: Node n3 now responding\nslurmd: launch task StepId=9.0 request from UID:1000\n",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_node_has_no_cause(diagnosis, name):
    assert diagnosis(HEALTHY[name]).category == "none"


def test_the_first_watchdog_that_finds_the_stall_is_quoted(diagnosis):
    found = diagnosis(
        "[Thu Mar 20 00:50:20 2031] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:\n"
        "[Thu Mar 20 00:50:20 2031] watchdog: BUG: soft lockup - CPU#1 stuck for 2471s! [CPU 0/KVM:31664]\n"
    )
    assert found.first_error.line == 1


def test_the_host_of_a_line_stands_behind_the_file_that_grep_names(diagnosis):
    line = "messages:Jun 17 20:18:09 g9 kernel: INFO: task fit:80601 blocked for more than 120 seconds.\n"
    assert [one.host for one in diagnosis(line).culprits] == ["g9"]


DISKS = {
    "sense": "Mar  4 05:06:07 g9 kernel: [99.1] sd 4:0:0:1: [sdk] tag#3 Add. Sense: Unrecovered read error\n",
    "rbd": "Mar  4 05:06:07 g9 kernel: [99.1] rbd: rbd5: write at objno 7 8192~4096 result -108\n"
    "Mar  4 05:06:07 g9 kernel: [99.2] blk_update_request: I/O error, dev rbd5, sector 16 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0\n",
    "ext4": "Mar  4 05:06:07 g9 kernel: EXT4-fs warning (device dm-3): ext4_end_bio:342: I/O error -5 writing to inode 77 (offset 0 size 4096 starting block 9)\n",
}


@pytest.mark.parametrize("name", DISKS)
def test_a_disk_s_first_word_of_its_failure_is_quoted(diagnosis, name):
    found = diagnosis(DISKS[name])
    assert (found.category, found.action, found.first_error.line) == ("storage_io", "isolate_node", 1)
    assert {one.host for one in found.culprits} == {"g9"}


def test_a_kubelet_that_starts_is_not_ready_at_first(diagnosis):
    row = "  Normal  {reason}  {age}  {source}, gpu-7  Node gpu-7 status is now: {reason}\n"
    starts = row.format(reason="NodeNotReady", age="9m", source="kubelet") + row.format(
        reason="NodeReady", age="8m", source="kubelet"
    )
    assert diagnosis(starts).category == "none"
    assert (
        diagnosis(row.format(reason="NodeNotReady", age="9m", source="kubelet")).category == "node_not_ready"
    )


def test_a_card_that_its_driver_cannot_start_costs_the_node(diagnosis):
    found = diagnosis(
        "[5.5] mlx5_core 0000:51:00.0: handle_hca_cap failed\n[5.6] mlx5_core 0000:51:00.0: mlx5_load_one failed with error code -22\n"
    )
    assert (found.category, found.action) == ("nic_down", "isolate_node")
