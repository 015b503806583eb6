"""A node with GPUs that are not there."""

from pathlib import Path

import pytest

from fake_nvml.node import Node, build


def _built(folder: Path, *, old: bool = False) -> Path:
    try:
        return build(folder, old=old)
    except LookupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in for NVML."""
    return _built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that lacks what drivers before R525 lack."""
    return _built(tmp_path_factory.mktemp("old-nvml"), old=True)


@pytest.fixture
def node(tmp_path: Path, library: Path) -> Node:
    """Eight GPUs, all well, as PCI and the driver show them."""
    made = Node(tmp_path, library)
    for index in range(8):
        made.on_bus(index)
    made.driver_loaded()
    made.kernel_says("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07")
    return made
