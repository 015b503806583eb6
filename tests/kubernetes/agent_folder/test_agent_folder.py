"""The agent's folder runs in images without Python, with other Pythons, and of musl, as restricted namespaces demand."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDER = HERE.parents[2] / "build" / "agent" / "opt" / "holdfast"
AGENT = "/holdfast/agent/bin/holdfast"
USER = 65532
# A training that fails once, tells its environment, and then goes on.
SCRIPT = """echo PYTHONPATH=$PYTHONPATH LD_LIBRARY_PATH=$LD_LIBRARY_PATH PYTHONHOME=$PYTHONHOME SAFE=$PYTHONSAFEPATH
echo step 1 loss 0.5
[ -e /holdfast/state/failed ] || { : > /holdfast/state/failed; echo RuntimeError: first; exit 3; }
echo step 2 loss 0.4; echo my number is $$; echo done"""

pytestmark = pytest.mark.skipif(
    not (FOLDER / "bin" / "holdfast").exists() or os.geteuid() != 0,
    reason="there is no agent folder (make agent-folder), or this is not root, who can make root file systems",
)


class Image:
    """A root file system with busybox as its shell. `state`: a volume that any user may write."""

    def __init__(self, path):
        self.root, self.state = path / "root", path / "state"
        for name in ("bin", "dev", "tmp", "holdfast", "etc", "lib"):
            (self.root / name).mkdir(parents=True)
        self.state.mkdir(mode=0o777)
        self.state.chmod(0o777)
        shutil.copy(shutil.which("busybox"), self.root / "bin" / "busybox")
        for name in ("sh", "env"):
            (self.root / "bin" / name).symlink_to("busybox")
        for name, minor in (("null", 3), ("urandom", 9)):
            os.mknod(self.root / "dev" / name, 0o20666, os.makedev(1, minor))
            (self.root / "dev" / name).chmod(0o666)
        self.volumes = [f"{FOLDER}=/holdfast/agent:ro", f"{self.state}=/holdfast/state"]

    def run(self, *command, env=None, uid=USER, init=0):
        own = {"PATH": "/bin", "HOME": "/nowhere", "HOLDFAST_STATE_DIR": "/holdfast/state", **(env or {})}
        words = [sys.executable, str(HERE / "contain.py"), str(self.root), str(uid), str(init), *self.volumes]
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", *words, "--", *map(str, command)],
            capture_output=True,
            text=True,
            timeout=120,
            env={"PATH": os.environ["PATH"], "CONTAINER": json.dumps(own)},
        )

    def train(self, *command, **given):
        flags = ("--job", "t", "--max-restarts", "3", "--unconditional-restart", "--boot-check", "off")
        return self.run(AGENT, "run", *flags, "--", *command, **given)


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path)


@pytest.mark.parametrize("init", [0, 1])
def test_a_training_in_an_image_without_python_is_restarted(image, init):
    run = image.train("/bin/sh", "-c", SCRIPT, init=init)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "step 2 loss 0.4" in run.stdout and "done" in run.stdout
    assert "SAFE=\n" in run.stdout


def test_the_variables_of_the_training_reach_it_and_not_the_agent(image, tmp_path):
    broken = image.root / "broken"
    broken.mkdir()
    for name in ("msgspec.py", "sitecustomize.py", "os.py"):
        (broken / name).write_text("raise SystemExit('this is the training's own')\n")
    for name in ("libc.so.6", "libm.so.6", "libz.so.1"):
        (broken / name).write_text("no library\n")
    env = {
        "PYTHONPATH": "/broken",
        "LD_LIBRARY_PATH": "/broken",
        "PYTHONHOME": "/broken",
        "LD_PRELOAD": "/broken/libz.so.1",
    }
    run = image.train("/bin/sh", "-c", SCRIPT, env=env)
    assert run.returncode == 0, run.stdout + run.stderr
    found = re.search(
        r"PYTHONPATH=(\S+) LD_LIBRARY_PATH=(\S+) PYTHONHOME=(\S+) SAFE=$", run.stdout, re.MULTILINE
    )
    assert found, run.stdout
    assert found[1].endswith("/broken") and (found[2], found[3]) == ("/broken", "/broken")


def test_a_program_of_musl_trains(image, tmp_path):
    compiler = shutil.which("musl-gcc")
    loader = next(iter(Path("/lib").glob("ld-musl-*.so.1")), None)
    if compiler is None or loader is None:
        pytest.skip("there is no musl-gcc: make agent-folder installs it")
    source = tmp_path / "train.c"
    source.write_text(
        '#include <stdio.h>\nint main(void) { puts("step 1 loss 0.5"); puts("of musl"); return 0; }\n'
    )
    subprocess.run([compiler, "-o", image.root / "bin" / "train", source], check=True)
    shutil.copy(loader, image.root / "lib" / loader.name)
    run = image.train("/bin/train")
    assert run.returncode == 0 and "of musl" in run.stdout, run.stdout + run.stderr


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_a_training_of_another_python_keeps_its_own_modules(image, tmp_path, version):
    prefix = prefix_of(version)
    for name in ("usr", "lib", "lib64"):
        if (Path("/") / name).exists():
            image.volumes.append(f"/{name}=/{name}:ro")
    image.volumes.append(f"{prefix}={prefix}:ro")
    script = "import sys; print('step 1 loss 0.5'); print(sys.version_info[:2], sys.prefix, 'msgspec' in sys.modules)"
    run = image.train(prefix / "bin" / f"python{version}", "-c", script)
    assert run.returncode == 0, run.stdout + run.stderr
    major, minor = version.split(".")
    assert f"({major}, {minor}) {prefix} False" in run.stdout


def prefix_of(version):
    """Of an installed Python of that version."""
    program = shutil.which(f"python{version}")
    code = "import sys; print(sys.base_prefix)"
    run = subprocess.run([program or "false", "-c", code], capture_output=True, text=True)
    places = [Path(run.stdout.strip())] if run.returncode == 0 else []
    places += sorted(Path(sys.base_prefix).parent.glob(f"{version}.*"))
    for place in places:
        if (place / "bin" / f"python{version}").exists():
            return place
    pytest.skip(f"Python {version} is not installed")


def test_the_init_container_copies_the_folder_and_it_runs_from_there(image, tmp_path):
    target = tmp_path / "copied"
    target.mkdir(mode=0o777)
    target.chmod(0o777)
    image.volumes[0] = f"{FOLDER}=/opt/holdfast:ro"
    image.volumes.append(f"{target}=/holdfast/agent")
    for _ in range(2):  # a container that is restarted copies again
        run = image.run("/opt/holdfast/bin/holdfast-copy", "/holdfast/agent")
        assert run.returncode == 0, run.stderr
    assert (target / "bin" / "holdfast").is_symlink()
    image.volumes.pop(0)
    image.volumes[-1] += ":ro"
    run = image.run(AGENT, "--help")
    assert run.returncode == 0 and "Usage: holdfast" in run.stdout, run.stderr


def test_the_folder_has_the_size_that_it_may_have():
    files = [path.lstat().st_size for path in FOLDER.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(files) <= 60_000_000  # of which 25 MB are the compiled modules, for a fast start


def test_a_folder_that_cannot_be_written_is_named(image):
    run = image.run("/holdfast/agent/bin/holdfast-copy", "/etc/x")
    assert run.returncode == 1 and "cannot be copied to /etc/x" in run.stderr
