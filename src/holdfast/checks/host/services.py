"""Checks for failed systemd services that a training needs: RDMA, time synchronisation, mounts, the
cluster scheduler.
"""

import re
import shutil
import time
from collections.abc import Iterator

from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.node_findings import passed, skipped, warned
from holdfast.model.checks import BOOT, LIGHT, MANUAL, ON_FAILURE, PROLOG, RULE, Scene, Spec
from holdfast.model.signatures import Words
from holdfast.observe.host.tool_run import ToolRun

LIST = ("systemctl", "list-units", "--failed", "--plain", "--no-legend", "--full")
WITHIN_S = 2.0
WANTED = re.compile(
    r"(?:openibd|opensm\w*|rdma\S*|nvidia-(?:persistenced|dcgm|imex)|dcgm|lnet|lustre\S*|slurmd|munge|chronyd?|"
    r"systemd-timesyncd|ntpd?|nfs-client|rpc-statd|autofs|kubelet|containerd|docker)\.service|(?!snap|sys-|dev-|run-|proc-|boot|var-lib-)\S+\.mount"
)


def failed_units(text: str) -> list[str]:
    """Returns the names of failed services that matter to a training, from the output of `systemctl
    list-units`.

        openibd.service loaded failed failed openibd - configure Mellanox devices     -> openibd.service
    """
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    return [name for name in names if WANTED.fullmatch(name)]


def look_at_services(scene: Scene) -> Iterator[Seen]:
    program = shutil.which(LIST[0])
    if program is None or not NodeFiles(scene).exists("/run/systemd/system"):
        yield skipped("systemd does not run here")
        return
    try:
        run = ToolRun((program, *LIST[1:]), time.monotonic() + WITHIN_S)
    except OSError as error:
        yield skipped(f"systemctl cannot be started: {error.strerror}")
        return
    while not run.poll(time.monotonic()):
        time.sleep(0.01)
    if run.killed or run.errors():
        yield skipped(
            "systemctl did not respond: " + (run.errors().strip()[:200] or f"none in {WITHIN_S:g} s")
        )
        return
    failed = failed_units(run.output().decode("utf-8", "replace"))
    for name in failed:
        yield warned(
            "failed",
            "running",
            RULE,
            device=name,
            why=f"systemd could not keep {name} running",
            en=(
                f"Find the reason with `systemctl status {name}` and `journalctl -u {name}`; then run "
                f"`systemctl restart {name}`."
            ),
            zh=f"用 `systemctl status {name}` 与 `journalctl -u {name}` 查看原因，然后执行 `systemctl restart {name}`。",
        )
    if not failed:
        yield passed("no service that a training needs has failed")


CHECKS = (
    Check(
        Spec(
            name="host-failed-services",
            area="host",
            what=Words(en="failed system services", zh="失败的系统服务"),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            timeout_s=4.0,
            needs=("systemd",),
        ),
        look_at_services,
    ),
)
