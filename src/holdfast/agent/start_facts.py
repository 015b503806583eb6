"""Records with what a training is started: variables that Holdfast adds, variables of the user that change
what a training computes, and versions of libraries.

Reads only names of files, and imports nothing of the training.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.agent.environment import DETERMINISTIC, Given
from holdfast.model.events import FindingNoted, Numbers
from holdfast.model.settings import RunSettings
from holdfast.parsers.log_lines.secrets import masked

# Variables that change what a training computes, or how fast.
SHAPING = re.compile(
    r"(?:NCCL|RCCL|HCCL|GLOO|UCX|TORCH|PYTORCH|CUDA|CUDNN|CUBLAS|NVIDIA|NVTE|ROCM|HIP|HSA|ASCEND|OMP|MKL|KMP|XLA|TF|JAX|HF|ACCELERATE"
    r"|DEEPSPEED|DS|MEGATRON|TRITON|FLASH_ATTENTION)_\w+|PYTHONHASHSEED|\w*SEED|LD_PRELOAD|LD_LIBRARY_PATH"
)
LIBRARIES = re.compile(
    r"(torch|numpy|triton|transformers|accelerate|deepspeed|datasets|lightning|pytorch_lightning|flash_attn"
    r"|transformer_engine|apex|torchvision|jax|nvidia_(?:nccl|cudnn|cublas|cuda_runtime)_cu\d+)-([^-]+)\.dist-info"
)
NOT_SET = (
    "not set: other seeds in the script, operations without a deterministic form (PyTorch warns of each), custom "
    "kernels, the number of ranks, the order of nodes, the model of the GPU, versions of libraries"
)
VARIABLES_MAX, VALUE_CHARACTERS_MAX = 200, 400
VARIABLE, VERSION = "env ", "version "  # before the names in the finding's numbers


def start_facts(
    given: Given, base: Mapping[str, str], program: str, at_s: float, settings: RunSettings
) -> Iterator[FindingNoted]:
    """Yields the findings for the journal. `base`: the user's environment. `program`: path of the training's Python."""
    text = "environment given: " + " ".join(f"{key}={value}" for key, value in sorted(given.added.items()))
    if given.kept:
        text += "; left as you set them: " + " ".join(given.kept)
    shaping = sorted(key for key in base if SHAPING.fullmatch(key))[:VARIABLES_MAX]
    numbers: Numbers = {
        VARIABLE + key: masked(f"{key}={base[key]}").partition("=")[2][:VALUE_CHARACTERS_MAX]
        for key in shaping
    }
    numbers |= {VERSION + name: version for name, version in versions(program).items()}
    yield FindingNoted(at_s=at_s, finding="environment", text=text, attempt=1, numbers=numbers)
    if settings.deterministic:
        yield determinism(given, at_s, shim=settings.shim)


def determinism(given: Given, at_s: float, *, shim: bool) -> FindingNoted:
    """Returns the finding that lists what a deterministic run sets, what the user had set, and what cannot be
    set.
    """
    kept = [key for key in given.kept if key in DETERMINISTIC]
    text = "deterministic: seeds 0 + rank, deterministic algorithms of PyTorch and cuDNN, cuBLAS, NCCL"
    if not shim:
        text = "deterministic: variables of cuBLAS, NCCL and Python only, because the shim is off"
    if kept:
        text += f"; left as you set them: {' '.join(kept)}"
    return FindingNoted(at_s=at_s, finding="deterministic", text=f"{text}; {NOT_SET}", attempt=1)


def versions(program: str) -> dict[str, str]:
    """Returns the versions of the libraries that are installed for a Python interpreter, by library name, as
    the names of their folders give them; empty if there are none.
    """
    found: dict[str, str] = {}
    if not program:
        return found
    for place in Path(program).absolute().parent.parent.glob("lib*/python3*/site-packages"):
        found["python"] = place.parent.name.removeprefix("python")
        try:
            names = os.listdir(place)
        except OSError:
            continue
        found |= {match[1]: match[2] for name in sorted(names) if (match := LIBRARIES.fullmatch(name))}
    return found
