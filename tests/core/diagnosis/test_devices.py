"""Device faults: who decides the action, what is the first cause of an incident, and when the program is to blame."""

import pytest

from core.diagnosis.candidate_kit import RULES, knowing, match
from holdfast.core.diagnosis.devices.judge import judge
from holdfast.model.code_facts import CodeTables
from holdfast.model.matches import Source
from holdfast.model.signatures import Signature
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.scan import search
from known import PACKAGE

SIGNATURES: tuple[Signature, ...] = tuple(one for one in PACKAGE if one.area != "worker")
TABLES: CodeTables = package_tables()
KNOWN = knowing(*SIGNATURES)
XID = "NVRM: Xid (PCI:{}): {}, pid=77, name=python3, {}"


@pytest.fixture
def of(tmp_path, cache_home):
    """What is held of logs with these texts, each a file of its own."""

    def judged(*texts, names=()):
        paths = []
        for number, text in enumerate(texts):
            path = tmp_path / (names[number] if names else f"kernel-{number}.log")
            path.write_text(text)
            paths.append(path)
        found = search(paths, SIGNATURES, cache=cache_home / "holdfast")
        return judge(found.matches, found.sources, TABLES, KNOWN)

    return judged


def causes(judgements):
    return [one for one in judgements if one.role == "cause"]


def xid(code, text="", *, device="0000:1b:00", at=1000.0):
    return f"[{at:12.6f}] {XID.format(device, code, text)}\n"


def test_nothing_seen_is_nothing_judged():
    assert judge((), (), TABLES, KNOWN) == ()
    assert judge((), (Source(name="a.log"),), CodeTables(), KNOWN) == ()


def test_the_table_decides_where_nothing_else_is_known(of):
    (judgement,) = of(xid(119, "Timeout after 6s of waiting for RPC response from GPU3 GSP!"))
    assert (judgement.category, judgement.action, judgement.decided_by) == ("xid_119", "reset_gpu", "table")
    assert "gpud: reboot_node" in judgement.disagree
    assert judgement.devices == ("0000:1b:00",)


def test_an_unknown_code_is_still_a_judgement(of):
    (judgement,) = of(xid(199, "something new"))
    assert (judgement.category, judgement.action) == ("xid_199", "")


def test_the_announced_recovery_action_is_trusted_most(of):
    (judgement,) = of(
        xid(119, "Timeout")
        + xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", at=1000.2)
    )
    assert (judgement.action, judgement.decided_by) == ("reboot_node", "recovery action")
    assert "table: reset_gpu" in judgement.disagree


def test_the_announcement_for_another_gpu_decides_nothing(of):
    judgement = of(
        xid(119, "Timeout")
        + xid(
            154,
            "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            device="0000:9c:00",
        )
    )[0]
    assert judgement.decided_by == "table"


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("GPU Reset Required", "reset_gpu"),
        ("Node Reboot Required", "reboot_node"),
        ("Drain and Reset", "reset_gpu"),
        ("Drain P2P", "reset_gpu"),
        ("Recover IMEX domain", "fix_env"),
    ],
)
def test_an_announcement_alone_gives_its_action(of, name, action):
    (judgement,) = of(xid(154, f"GPU recovery action changed from 0x0 (None) to 0x4 ({name})"))
    assert (judgement.role, judgement.action) == ("cause", action)


def test_a_row_remap_that_waits_wants_a_reset_though_the_table_says_none(of):
    (judgement,) = of(xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate."))
    assert (judgement.category, judgement.action, judgement.decided_by) == (
        "xid_63",
        "reset_gpu",
        "state flags",
    )
    assert {"NVIDIA: none", "EKS: isolate_node"} <= set(judgement.disagree)


def test_a_failed_remap_outweighs_the_ecc_error_before_it(of):
    (judgement,) = of(
        xid(48, "An uncorrectable double bit error (DBE) has been detected")
        + xid(64, "Row Remapper Error: (0x1) - All reserved rows for bank are remapped", at=1000.1)
    )
    assert (judgement.category, judgement.action, judgement.decided_by) == (
        "xid_48",
        "isolate_node",
        "state flags",
    )


def test_the_record_of_a_remap_follows_its_ecc_error_in_any_order(of):
    (judgement,) = of(
        xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate.")
        + xid(95, "Uncontained: L2", at=1000.1)
        + xid(45, "Ch 00000001", at=1000.2)
    )
    assert judgement.category == "xid_95"
    assert len(judgement.explained) == 2


@pytest.mark.parametrize(
    ("text", "action", "severity"),
    [
        ("RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", "none", "warning"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x002425c6 0x00000000)", "reset_gpu", "error"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)", "none", "warning"),
        ("TLW_CTRL Fatal XC0 i0 Link 00 (0x00000123 0x00000004)", "reset_gpu", "error"),
    ],
)
def test_nvlink5_events_are_decoded(of, text, action, severity):
    judgement = causes(of(f"NVRM: Xid (PCI:0018:01:00): 149, {text}\n"))[0]
    assert (judgement.action, judgement.severity, judgement.decided_by) == (action, severity, "sub-code")


def test_a_link_that_the_peer_took_down_blames_the_peer(of):
    (judgement,) = of(
        "[ 50.1] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x0)\n"
        "[ 50.2] NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x002425c6 0x0)\n"
    )
    assert judgement.devices == ("0008:01:00",)


def test_whole_devices_at_once_need_the_node_rebooted(of):
    line = "NVRM: Xid (PCI:{}:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)\n"
    (judgement,) = of(line.format("0008") + line.format("0009"))
    assert (judgement.action, judgement.devices) == ("reboot_node", ("0008:01:00", "0009:01:00"))


@pytest.mark.parametrize(
    ("word", "says"),
    [("0x00000010", "ECC"), ("0x00200000", "signals"), ("0x00000100", "seating"), ("0x2", "peer")],
)
def test_the_register_word_of_xid_74_is_decoded(of, word, says):
    (judgement,) = of(
        xid(74, f"NVLink: fatal error detected on link 4({word}, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")
    )
    assert judgement.decided_by == "sub-code"
    assert says in judgement.why.en


def test_an_access_of_the_program_is_its_code(of):
    (judgement,) = of(
        xid(31, "Ch 00000008, intr 0. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f. Fault is of type FAULT_PDE")
        + xid(43, "Ch 00000008", at=1000.1)
    )
    assert (judgement.category, judgement.action) == ("xid_31", "fix_code")


def test_the_same_on_one_gpu_again_hours_later_is_the_gpu(of):
    judgement = of(xid(13, "Graphics Exception: ESR 0x1"), xid(13, "Graphics Exception: ESR 0x2", at=9000.0))
    assert [(one.action, one.decided_by) for one in judgement] == [("isolate_node", "repetition")]


def test_a_programs_fault_on_several_gpus_is_the_program(of):
    judgements = of(
        xid(13, "Graphics Exception: ESR 0x1")
        + xid(13, "Graphics Exception: ESR 0x1", device="0000:5d:00", at=1001)
    )
    assert {(one.action, one.decided_by) for one in judgements} == {("fix_code", "exoneration")}


def test_memory_errors_of_several_gpus_are_not_the_program(of):
    judgements = of(xid(94, "Contained: SM") + xid(94, "Contained: SM", device="0000:5d:00", at=1001))
    assert {one.decided_by for one in judgements} == {"table"}


def test_a_lost_link_is_the_cause_of_a_lost_gpu(of):
    first, *rest = of(
        "[ 100.1] pcieport 0000:15:01.0: pciehp: Slot(4): Link Down\n"
        + xid(79, "GPU has fallen off the bus.", device="0000:16:00", at=100.3)
        + "[ 100.300001] NVRM: GPU 0000:16:00.0: GPU has fallen off the bus.\n"
        + "[ 101.0] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up\n"
        + xid(45, "Ch 00000001", device="0000:16:00", at=101.5)
    )
    assert (first.category, len(first.explained), rest) == ("pcie_aer", 4, [])
    assert first.devices == ("0000:15:01.0", "0000:16:00")


def test_a_lost_gpu_is_the_cause_of_the_switch_ports_behind_it(of):
    (judgement,) = of(
        "[ 99.9] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up\n"
        + xid(79, "GPU has fallen off the bus.", at=100.3)
    )
    assert judgement.category == "xid_79"


def test_a_corrected_error_long_before_explains_nothing(of):
    judgements = of(
        "[ 100.1] pcieport 0000:00:1d.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
        + xid(79, "GPU has fallen off the bus.", at=5000.0)
    )
    assert [one.category for one in causes(judgements) if one.severity == "fatal"] == ["xid_79"]


def test_the_lines_of_a_gpu_lost_without_xid_are_one(of):
    (judgement,) = of(
        "[ 18.30] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
        "[ 18.43] NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
    )
    assert (judgement.category, judgement.devices) == ("gpu_missing", ("0000:b3:00.0",))


def test_fabric_manager_and_kernel_tell_of_the_same_event(of):
    (judgement,) = of(
        "nvidia-nvswitch1: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 33 LTSSM Fault Up\n",
        "[Jul 23 2024 07:53:55] [ERROR] [tid 8] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch"
        " pci bus id 00000000:86:00.0 physical id 3 port 33\n",
        names=("dmesg.log", "fabricmanager.log"),
    )
    assert (judgement.category, judgement.action, len(judgement.explained)) == ("sxid", "reset_gpu", 1)


def test_a_switch_error_that_every_boot_writes_is_context(of):
    (judgement,) = of(
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt\n"
    )
    assert judgement.role == "context"


def test_xid_45_is_explained_by_any_other(of):
    (judgement,) = of(xid(45, "Ch 1") + xid(62, "PMU Halt", device="0000:5d:00", at=1000.4))
    assert judgement.category == "xid_62"


@pytest.mark.parametrize(
    ("lines", "category"),
    [
        (
            "hog invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job/a,"
            "task_memcg=/job/a,task=python,pid=629,uid=0\n"
            "Memory cgroup out of memory: Killed process 629 (python) total-vm:1kB, anon-rss:1kB\n",
            "cgroup_oom",
        ),
        (
            "hog invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0\n"
            "Task in /docker/f0 killed as a result of limit of /docker/f0\n"
            "Memory cgroup out of memory: Kill process 629 (hog) score 1016 or sacrifice child\n"
            "Killed process 629 (hog) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n",
            "cgroup_oom",
        ),
        (
            "hog invoked oom-killer: gfp_mask=0x280da, order=0, oom_score_adj=0\n"
            "Out of memory: Kill process 629 (hog) score 880 or sacrifice child\n"
            "Killed process 629 (hog) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n",
            "host_oom",
        ),
    ],
)
def test_a_kill_for_memory_is_one_report_that_begins_with_who_asked(of, lines, category):
    (judgement,) = of(lines)
    assert judgement.category == category
    assert judgement.first.text.startswith("hog invoked")
    assert "pid 629" in judgement.why.en
    assert "memory requested by hog" in judgement.why.en


def test_two_kills_are_two_reports(of):
    kill = "a invoked oom-killer: gfp_mask=0xd0, order=0\nMemory cgroup out of memory: Killed process {} (x) total-vm:1kB\n"
    assert len(of(kill.format(1).replace("a i", "b i") + kill.format(22))) == 2


def test_a_link_that_comes_back_flaps_and_one_that_does_not_is_down(of):
    down, up = (
        "[ 900.0] mlx5_core 0000:41:00.0 eth2: Link down\n",
        "[ 912.0] mlx5_core 0000:41:00.0 eth2: Link up\n",
    )
    (flap,) = of(down + up)
    assert (flap.category, flap.severity) == ("nic_link_flap", "warning")
    assert "12 s" in flap.why.en
    (long,) = of(down + up.replace("912", "943"))
    assert (long.category, long.severity) == ("nic_link_flap", "error")
    (gone,) = of(up + down.replace("900", "990"))
    assert (gone.category, gone.severity) == ("nic_down", "error")


def test_links_that_settle_at_boot_are_no_fault(of):
    (judgement,) = of(
        "[ 12.0] mlx5_core 0000:41:00.0 eth2: Link down\n[ 14.0] mlx5_core 0000:41:00.0 eth2: Link up\n"
    )
    assert judgement.role == "context"


def test_an_outage_of_storage_has_a_length(of):
    (stall,) = of("[ 100.0] nfs: server nas1 not responding, still trying\n[ 400.0] nfs: server nas1 OK\n")
    assert (stall.category, stall.severity) == ("nfs_lustre_stall", "error")
    assert "300 s" in stall.why.en
    (blink,) = of("[ 100.0] nfs: server nas1 not responding, still trying\n[ 101.0] nfs: server nas1 OK\n")
    assert blink.severity == "warning"


def test_a_few_corrected_errors_in_a_long_log_are_context(of):
    error = "[{}.0] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Chan#{}_DIMM#0 (channel:0)\n"
    noise = "".join(f"[ {n}.0] systemd[1]: Started a unit of some kind.\n" for n in range(2000))
    assert causes(of(noise + error.format(3000, 0))) == []
    many = "".join(error.format(3000 + n, 0) for n in range(20))
    assert [one.category for one in causes(of(noise + many))] == ["mce_edac"]


def test_a_few_corrected_errors_weigh_little_and_many_much(of):
    error = "[{}.0] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Chan#{}_DIMM#0 (channel:0)\n"
    (few,) = causes(of(error.format(10, 0)))
    (many,) = causes(of("".join(error.format(10 + n, 0) for n in range(20))))
    assert few.confidence < 0.5 < many.confidence


def test_the_announcement_of_a_report_is_part_of_it(of):
    error = "[{}.0] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Chan#0_DIMM#0 (channel:0)\n"
    announced = "[ 9.0] mce: [Hardware Error]: Machine check events logged\n"
    (told,) = causes(of(announced + "".join(error.format(10 + n) for n in range(20))))
    assert told.first.signature == "edac-corrected"
    assert "mce-logged" in {one.signature for one in told.explained}


def test_the_words_fit_the_code_the_device_and_the_action(of):
    (judgement,) = of(xid(79, "GPU has fallen off the bus."))
    assert judgement.title.en == "Xid 79 on GPU 0000:1b:00: GPU is no longer reachable over PCIe"
    assert "reboot" in judgement.advice.en
    assert "重启" in judgement.advice.zh
    (unknown,) = of(xid(199, "new"))
    assert unknown.title is None


@pytest.mark.parametrize(
    ("line", "device", "action"),
    [
        ("device 3 fault code: 0x80E01801 raised", "", "restart"),
        (
            "[ERROR] RUNTIME(1,t):2031-09-23 [task.cc:1]PrintErrorInfo:E30008Memory async copy failed, device_id=2, x",
            "NPU 2",
            "",
        ),
    ],
)
def test_npu_faults_name_the_npu(of, line, device, action):
    (judgement,) = of(line + "\n")
    assert judgement.devices == ((device,) if device else ())
    assert judgement.action == action


def test_what_only_looks_like_a_code_of_an_npu_is_context(of):
    (judgement,) = of("a driver said: error code: 0xC0000005\n")
    assert judgement.role == "context"


def test_npu_codes_that_need_nothing_are_context(of):
    (judgement,) = of("npu-exporter: device 1 fault code: 0x80818201\n")
    assert (judgement.role, judgement.fact.mnemonic) == ("context", "NotHandle")


def test_a_storm_of_one_fault_is_one_judgement(of):
    storm = "".join(
        f"[ {100 + n}.0] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link {n} LTSSM Fault Up\n"
        for n in range(64)
    )
    (judgement,) = of(storm)
    assert len(judgement.explained) == 63


def test_how_long_it_takes_grows_with_the_number_of_matches_only():
    # an episode of very many matches, as a folder of many nodes' logs without host names can give
    signature = next(one for one in SIGNATURES if one.id == "nvidia-xid")
    matches = tuple(
        match(
            signature,
            offset=n,
            text=f"NVRM: Xid (PCI:0000:{n % 250:02x}:00): 94",
            captures={"xid": "94", "device": f"0000:{n % 250:02x}:00"},
        )
        for n in range(20_000)
    )
    (judgement,) = judge(matches, (Source(name="all.log"),), TABLES, KNOWN)
    assert len(judgement.devices) == 250
    assert len(judgement.explained) == 19_999


def test_every_line_that_counts_as_a_device_event_is_a_signature():
    rows = [row for row in RULES.reading if row.table == "device-event"]
    assert {id_ for row in rows for id_ in row.values} <= {one.id for one in PACKAGE}
