"""Names of programs that start, wrap or prepare a training, and forms of their arguments. Data only."""

from holdfast.late_pattern import late

TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.run")


LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "colossalai", "composer")


SHELLS = ("bash", "sh", "zsh", "dash", "ksh")


MODULE_LAUNCHERS = dict.fromkeys(TORCH_MODULES, "torchrun") | {
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "accelerate.commands.launch": "accelerate",
    "accelerate": "accelerate",
}


FLAGS = frozenset(
    (
        *(
            "standalone",
            "no-python",
            "module",
            "run-path",
            "m",
            "use-env",
            "multi-gpu",
            "cpu",
            "tpu",
            "mps",
            "q",
        ),
        *(
            "use-deepspeed",
            "use-fsdp",
            "use-megatron-lm",
            "debug",
            "quiet",
            "same-network",
            "dynamo-use-dynamic",
        ),
        *(
            "no-local-rank",
            "no-ssh",
            "no-ssh-check",
            "force-multi",
            "save-pid",
            "bind-cores-to-rank",
            "use-xpu",
        ),
        *(
            "elastic-training",
            "disable-gpu-id-override",
            "no-ssh-check",
            "ipex",
            "use-cpu",
            "enable-cpu-affinity",
        ),
    )
)


PYTHON = late(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?")


PYTHON_TAKES = ("-X", "-W", "--check-hash-based-pycs")


SCRIPT = late(r"\S*\.(?:sh|bash|slurm|sbatch|zsh)")


SCANNED = frozenset(
    (
        *("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "jsrun", "aprun", "horovodrun"),
        *(
            "nohup",
            "time",
            "nice",
            "ionice",
            "stdbuf",
            "timeout",
            "exec",
            "taskset",
            "numactl",
            "setsid",
            "unbuffer",
        ),
        *(
            "nsys",
            "ncu",
            "strace",
            "ltrace",
            "gdb",
            "sudo",
            "catchsegv",
            "chrt",
            "prlimit",
            "script",
            "holdfast",
        ),
    )
)


ELSEWHERE = frozenset(
    (
        *(
            "docker",
            "podman",
            "nerdctl",
            "singularity",
            "apptainer",
            "enroot",
            "kubectl",
            "ssh",
            "pdsh",
            "clush",
        ),
        *("ray", "sbatch", "salloc", "bsub", "qsub", "dsub", "aws", "gcloud", "sky"),
    )
)


RESOLVERS = frozenset(
    ("uv", "uvx", "poetry", "pipenv", "pixi", "hatch", "pdm", "rye", "nix", "nix-shell", "guix")
)


PREPARES = frozenset(
    (
        "source",
        ".",
        "conda",
        "mamba",
        "micromamba",
        "module",
        "ml",
        "spack",
        "eval",
        "pyenv",
        "workon",
        "unset",
    )
)


HARMLESS_EVAL = late(
    r"eval\s+[\"']?(?:\$\(|`)\s*(?:[\w./~${}-]*/)?(?:conda|mamba|micromamba|pyenv)\s+(?:shell\.\w+\s+hook|shell\s+hook"
    r"|init)[^)`;|&]*(?:\)|`)[\"']?(?:\s+2>\S+)?"
)


CONDA_BASE = late(r"\$\(\s*(?:[\w./~${}-]*/)?conda\s+info\s+--base\s*\)")


# Files that make an environment ready, and do nothing else.
KNOWN_SOURCE = late(
    r"(?:^|/)(?:activate(?:\.sh)?|conda\.sh|mamba\.sh|profile|bash\.bashrc|\.bashrc|\.bash_profile|\.profile|setup-env\.sh"
    r"|set_env\.sh|modules?\.sh|lmod\.sh|z00_lmod\.sh|init/(?:bash|sh|profile)|environment)$"
)
