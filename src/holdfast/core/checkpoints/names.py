"""Recognises checkpoints by the names of their files and folders. Pure.

sources: the endings that each library writes by default, beside each of them; transformers, trainer_utils.py
(checkpoint-500); Megatron-LM, checkpointing.py (iter_0000500); DeepSpeed, engine.py (global_step500); Lightning,
model_checkpoint.py (epoch=1-step=500.ckpt)
"""

from holdfast.late_pattern import late

FILES = (
    ".pt",  # torch.save, Megatron-LM, DeepSpeed
    ".pth",  # torch.save, MMEngine
    ".ckpt",  # Lightning, MindSpore, TensorFlow 1
    ".bin",  # transformers
    ".safetensors",  # safetensors
    ".distcp",  # torch.distributed.checkpoint
    ".pdparams",  # Paddle
    ".pdopt",  # Paddle
    ".pth.tar",  # examples of PyTorch
    ".h5",  # Keras 2
    ".keras",  # Keras 3
    ".msgpack",  # Flax
)
METADATA = ".metadata"  # torch.distributed.checkpoint
# Files beside checkpoints that name the newest one.
TRACKERS = (
    "latest",  # DeepSpeed
    "latest_checkpointed_iteration.txt",  # Megatron-LM
    "last_checkpoint",  # MMEngine, detectron2
    "checkpoint",  # TensorFlow
)
_NUMBERED = late(
    r"(?i)(?:.*[-_.=])?(?:checkpoint|ckpt|global_?step|step|iter|iteration|epoch)[-_=]?\d+(?:[-_=.].*)?"
)
# Of files without an ending, and of TensorFlow: ckpt_1000, model.ckpt-1000.index
_NUMBERED_FILE = late(r"(?i)(?:.*[-_.=])?(?:checkpoint|ckpt)[-_=]?\d+(?:\.(?:index|meta|data-\d+-of-\d+))?")
_UNFINISHED = late(
    r"(?i)\..*|(?:tmp|temp)(?:[-_.\d].*)?|.*\.(?:tmp|temp|part|partial|incomplete|writing|lock)(?:[-_.]\w+)?"
)
_LIKELY = late(
    r"(?i).*(?:checkpoint|ckpt|output|save|model|snapshot|weight|result|experiment|work_dir|lightning_logs).*|out|runs?|exp"
)


def is_likely_folder(name: str) -> bool:
    """Returns whether checkpoints may be saved in a folder of this name: "outputs", "lightning_logs"."""
    return bool(_LIKELY.fullmatch(name))


def is_file(name: str) -> bool:
    """Returns whether a file of this name is a checkpoint or a part of one: "model.safetensors", "step_500.pt"."""
    return not is_unfinished(name) and (name.endswith(FILES) or bool(_NUMBERED_FILE.fullmatch(name)))


def is_folder(name: str) -> bool:
    """Returns whether all files in a folder of this name are one checkpoint: "checkpoint-500", "iter_0000500"."""
    return not is_unfinished(name) and bool(_NUMBERED.fullmatch(name))


def is_unfinished(name: str) -> bool:
    """Returns whether a file or folder of this name is still to be renamed: "checkpoint.part", "tmp-checkpoint-500"."""
    return name != METADATA and bool(_UNFINISHED.fullmatch(name))


def is_tracker(name: str) -> bool:
    return name in TRACKERS
