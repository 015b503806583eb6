"""The zygote's process as the agent handles it."""

import os
import sys
from pathlib import Path

import pytest

from holdfast.agent.standby.imports_known import Known
from holdfast.agent.standby.zygote import Zygote
from run.place import wait_for

IMPORTS = (
    "import os, sys, time; os.setpriority(os.PRIO_PROCESS, 0, 19); open(sys.argv[1], 'w'); time.sleep(600)"
)


def may_raise():
    pid = os.fork()
    if pid == 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, 19)
            os.setpriority(os.PRIO_PROCESS, 0, 0)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def share(pid):
    """The priority of its autogroup; None: the kernel has none."""
    path = Path(f"/proc/{pid}/autogroup")
    return path.read_text().split()[-1] if path.exists() else None


@pytest.mark.skipif(not may_raise(), reason="needs CAP_SYS_NICE")
def test_imports_have_the_usual_priority_once_an_attempt_waits_for_them(tmp_path):
    mark = tmp_path / "low"
    argv = (sys.executable, "-S", "-c", IMPORTS, str(mark))
    zygote = Zygote(argv, os.environ, str(tmp_path), Known(), tmp_path)
    try:
        wait_for("its low priority", mark.exists)
        assert os.getpriority(os.PRIO_PROCESS, zygote.pid) == 19
        assert share(zygote.pid) in ("19", None)
        os.close(zygote.serve(tmp_path, {}))
        assert os.getpriority(os.PRIO_PROCESS, zygote.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert share(zygote.pid) in ("0", None)
        assert (tmp_path / "zygote.sock").is_socket()
    finally:
        zygote.end()
