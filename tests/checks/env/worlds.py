"""A node and a run on it, below a folder: a Python with a fabricated torch, a script, profiles, devices, checkpoints."""

import json
import os
import socket
import struct
import sys
import time
import zipfile
from pathlib import Path

from holdfast.model.checks import Scene

SCRIPT = "import os\nimport torch\n\nprint('never run')\n"
STUB_LAUNCHER = "#!{python}\nraise SystemExit('never run')\n"
PYTHON_LIB = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


class World:
    """A node and a run on it, below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.work = folder / "work"
        self.home = folder / "home"
        for place in (self.root / "dev", self.root / "proc", self.work, self.home):
            place.mkdir(parents=True)
        self.venv = self.python_environment("venv")
        self.env = {"PATH": f"{self.venv}/bin:/usr/bin:/bin", "HOME": str(self.home)}
        self.command: tuple[str, ...] = ("torchrun", "--standalone", "--nproc-per-node", "2", "train.py")
        self.keep: list[object] = []
        self.ranks: int | None = None
        self.write("train.py", SCRIPT)
        self.torch("2.6.0", "12.4", "2.21.5")
        self.cpus(64)
        self.networks("lo", "eth0")

    def python_environment(self, name: str) -> Path:
        """As `python -m venv --without-pip` makes it."""
        venv = self.folder / name
        (venv / "bin").mkdir(parents=True)
        (venv / PYTHON_LIB).mkdir(parents=True)
        base = Path(os.path.realpath(sys.executable))
        for link in ("python", "python3"):
            (venv / "bin" / link).symlink_to(base)
        (venv / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
        for launcher in ("torchrun", "deepspeed", "accelerate"):
            self.program(venv / "bin" / launcher, STUB_LAUNCHER.format(python=venv / "bin/python"))
        return venv

    def write(self, name: str, text: str) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def package(self, name: str, version: str = "1.0", venv: Path | None = None) -> Path:
        site = (venv or self.venv) / PYTHON_LIB
        module = site / name.replace("-", "_")
        module.mkdir(exist_ok=True)
        (module / "__init__.py").write_text("raise RuntimeError('a check has run the code of the run')\n")
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        return module

    def torch(self, version: str, cuda: str, nccl: str = "", venv: Path | None = None) -> None:
        site = (venv or self.venv) / PYTHON_LIB
        for old in (*site.glob("torch-*"), *site.glob("nvidia_nccl*")):
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
        module = self.package("torch", version, venv)
        said = f"Optional[str] = '{cuda}'" if cuda else "Optional[str] = None"
        (module / "version.py").write_text(
            f"__version__ = '{version}'\ncuda: {said}\nhip: Optional[str] = None\n"
        )
        (module / "_C.so").touch()
        if nccl:
            self.package("nvidia-nccl-cu12", nccl, venv)

    def gpus(self, count: int, driver: str = "550.54.15", model: str = "NVIDIA H100 80GB HBM3") -> None:
        for number in range(count):
            (self.root / "dev" / f"nvidia{number}").touch()
            place = self.root / f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0"
            place.mkdir(parents=True)
            (place / "information").write_text(f"Model: \t\t {model}\n")
        place = self.root / "proc/driver/nvidia"
        place.mkdir(parents=True, exist_ok=True)
        text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Mar  5 22:23:56 UTC 2024\n"
        (place / "version").write_text(text)

    def cpus(self, count: int) -> None:
        place = self.root / "sys/devices/system/cpu"
        place.mkdir(parents=True, exist_ok=True)
        (place / "online").write_text(f"0-{count - 1}\n")

    def networks(self, *names: str) -> None:
        for name in names:
            (self.root / "sys/class/net" / name).mkdir(parents=True, exist_ok=True)

    def rdma(self, *names: str) -> None:
        for name in names:
            port = self.root / f"sys/class/infiniband/{name}/ports/1"
            port.mkdir(parents=True)
            (port / "state").write_text("4: ACTIVE\n")

    def conda(self, *names: str) -> Path:
        """A conda as far as a shell sees it: a function that puts an environment first in PATH."""
        base = self.folder / "conda"
        for name in names:
            self.torch("2.6.0", "12.4", "2.21.5", self.python_environment(f"conda/envs/{name}"))
        hook = base / "etc/profile.d/conda.sh"
        hook.parent.mkdir(parents=True, exist_ok=True)
        hook.write_text(
            f'conda() {{\n  [ -d {base}/envs/$2 ] || {{ echo "EnvironmentNameNotFound: $2" >&2; return 1; }}\n'
            f"  export CONDA_PREFIX={base}/envs/$2 CONDA_DEFAULT_ENV=$2 PATH={base}/envs/$2/bin:$PATH\n}}\n"
        )
        return hook

    def listen(self) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        self.keep.append(server)
        return int(server.getsockname()[1])

    def close(self) -> None:
        for one in self.keep:
            if isinstance(one, socket.socket):
                one.close()

    def scene(self) -> Scene:
        return Scene(
            root=str(self.root),
            host="node-1",
            command=self.command,
            env=self.env,
            cwd=str(self.work),
            ranks=self.ranks,
            now_s=time.time(),
        )


# Checkpoints


def saved(path: Path, kib: int = 64) -> None:
    """A zip file such as torch.save writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/data/0", b"\x01" * kib * 1024)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def tensors(path: Path, missing_bytes: int = 0) -> None:
    """source: safetensors, Format"""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * (1024 - missing_bytes))


def trainer_checkpoint(folder: Path, step: int) -> Path:
    place = folder / f"checkpoint-{step}"
    tensors(place / "model.safetensors")
    saved(place / "optimizer.pt")
    (place / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return place


def bash(text: str, *options: str) -> tuple[str, ...]:
    return ("bash", *options, "-c", text)


def saves_to(world: World, folder: str) -> Path:
    world.command = (*world.command, "--save", folder)
    return world.work / folder
