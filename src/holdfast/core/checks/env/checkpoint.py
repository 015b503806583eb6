"""Judges whether a checkpoint is complete, by the layout of its folder and the first and last bytes of its
files. Pure.

source: torch.save writes a zip file (APPNOTE.TXT 4.3, end of central directory); safetensors, Format;
Megatron-LM, checkpointing.py (latest_checkpointed_iteration.txt, iter_0000100); DeepSpeed, engine.py
(latest); transformers, trainer_utils.get_last_checkpoint; torch.distributed.checkpoint, filesystem.py
(.metadata, *.distcp)
"""

import struct
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.checks import ASKED, ENVIRONMENT_FAULT, FAIL, PASS, WARN, Finding
from holdfast.model.signatures import Words

HEAD_BYTES = 8
TAIL_BYTES = (1 << 16) + 22  # the end record of a zip file, with its longest possible comment
HEADER_BYTES_MAX = 100 << 20
FILES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
MEGATRON, DEEPSPEED, TRAINER, FILE, PARTS = (
    "Megatron",
    "DeepSpeed",
    "Hugging Face",
    "file",
    "torch.distributed",
)
MEGATRON_TRACKER, DEEPSPEED_TRACKER = "latest_checkpointed_iteration.txt", "latest"
_NUMBERED = late(r"checkpoint-(\d+)")
_STEPS = late(r"(?:step|global_step|iter|epoch|ckpt)[-_=]?(\d+)")
_END, _END_BYTES = b"PK\5\6", 22
_LOCATOR, _LOCATOR_BYTES = b"PK\6\7", 20


class Entry(Struct, frozen=True):
    """A file or folder in a checkpoint folder, by name."""

    name: str
    is_folder: bool
    changed_s: float
    size: int = 0


class Newest(Struct, frozen=True, kw_only=True):
    """The checkpoint from which a run would resume.

    `name`: path relative to the checkpoint folder; empty if there is none, because of `wrong`. `follows`: the tracker
    file that names this checkpoint and that the framework reads.
    """

    layout: str
    name: str = ""
    follows: str = ""
    wrong: str = ""


def newest_of(entries: Sequence[Entry], trackers: Mapping[str, str]) -> Newest | None:
    """Returns the newest checkpoint; None without a known layout.

    `trackers`: contents of the files that name it.
    """
    folders = {entry.name for entry in entries if entry.is_folder}
    if (text := trackers.get(MEGATRON_TRACKER)) is not None:
        return _of_megatron(text.strip(), folders)
    if (text := trackers.get(DEEPSPEED_TRACKER)) is not None:
        name = text.strip()
        if not name or "/" in name:
            wrong = "it is empty" if not name else f"it names {name!r}"
            return Newest(layout=DEEPSPEED, follows=DEEPSPEED_TRACKER, wrong=wrong)
        wrong = "" if name in folders else f"it names {name}, which is not there"
        return Newest(layout=DEEPSPEED, name="" if wrong else name, follows=DEEPSPEED_TRACKER, wrong=wrong)
    numbered = [(int(found[1]), name) for name in folders if (found := _NUMBERED.fullmatch(name))]
    if numbered:
        return Newest(layout=TRAINER, name=max(numbered)[1])
    if any(entry.name.endswith(".distcp") for entry in entries):
        return Newest(layout=PARTS, name=".")
    steps = [(int(found[1]), name) for name in folders if (found := _STEPS.fullmatch(name))]
    if steps:
        return Newest(layout=PARTS, name=max(steps)[1])
    files = [entry for entry in entries if not entry.is_folder and entry.name.endswith(FILES)]
    if files:
        return Newest(layout=FILE, name=max(files, key=lambda entry: (entry.changed_s, entry.name)).name)
    return None


def _of_megatron(text: str, folders: set[str]) -> Newest:
    if text != "release" and not (text.isascii() and text.isdigit()):
        wrong = f"its content is {text[:40]!r}, not an iteration number" if text else "it is empty"
        return Newest(layout=MEGATRON, follows=MEGATRON_TRACKER, wrong=wrong)
    name = "release" if text == "release" else f"iter_{int(text):07d}"
    wrong = "" if name in folders else f"it names {name}, which is not there"
    return Newest(layout=MEGATRON, name="" if wrong else name, follows=MEGATRON_TRACKER, wrong=wrong)


# Single files


def state_of_file(name: str, size: int, head: bytes, tail: bytes) -> str:
    """Returns what is wrong with a checkpoint file; empty if no defect is visible. `head`, `tail`: its first and last
    bytes.
    """
    if size == 0:
        return "it is empty"
    if not any(head):
        return "it begins with zero bytes"
    if name.endswith(".safetensors"):
        return _of_safetensors_length(head, size)
    if head.startswith(b"PK\3\4"):
        return _of_zip(size, tail)
    return ""


def _of_zip(size: int, tail: bytes) -> str:
    cut = "it is truncated: the end of its zip file is missing"
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < _END_BYTES:
        return cut
    listing_bytes, listing_at, remark = struct.unpack("<IIH", tail[place + 12 : place + _END_BYTES])
    if place + _END_BYTES + remark != len(tail):
        return cut
    end_at = size - len(tail) + place
    if listing_at == 0xFFFFFFFF or listing_bytes == 0xFFFFFFFF:
        locator = tail[place - _LOCATOR_BYTES : place]
        return "" if locator.startswith(_LOCATOR) else cut
    return "" if listing_at + listing_bytes <= end_at else cut


def _of_safetensors_length(head: bytes, size: int) -> str:
    length = int.from_bytes(head[:HEAD_BYTES], "little")
    if len(head) < HEAD_BYTES or length < 2 or length > HEADER_BYTES_MAX:
        return "it has no valid safetensors header"
    return "it is truncated within its header" if HEAD_BYTES + length > size else ""


def state_of_safetensors(header: bytes, size: int) -> str:
    """Returns what is wrong with a safetensors file; empty if nothing is.

    `header`: the JSON text after the first 8 bytes.
    """
    try:
        tensors = msgspec.json.decode(header)
        ends = [int(value["data_offsets"][1]) for name, value in tensors.items() if name != "__metadata__"]
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        return "its header cannot be read"
    wanted = HEAD_BYTES + len(header) + max(ends, default=0)
    return "" if size >= wanted else f"it is truncated: {size} bytes of {wanted}"


# Folders


def state_of_folder(layout: str, names: Sequence[str], texts: Mapping[str, bytes]) -> str:
    """Returns what is missing in the folder of one checkpoint; empty if nothing is.

    `texts`: contents of its JSON files.
    """
    if not names:
        return "it is empty"
    here = set(names)
    if any(name.endswith(".distcp") for name in names) and not {".metadata", "metadata.json"} & here:
        return ".metadata is missing, which is written last"
    if layout == TRAINER:
        if "trainer_state.json" not in here:
            return "trainer_state.json is missing, which is written near the end"
        if not _is_object(texts.get("trainer_state.json", b"")):
            return "trainer_state.json cannot be read"
    for name, text in texts.items():
        if name.endswith(".index.json") and (lost := _lost_parts(text, here)):
            return f"{lost}, which {name} lists, is missing"
    return ""


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.MsgspecError:
        return False


def _lost_parts(text: bytes, here: set[str]) -> str:
    try:
        parts = msgspec.json.decode(text)["weight_map"].values()
        return next((str(part) for part in parts if part not in here), "")
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        return "a part (the index of the checkpoint cannot be read)"


# Results


def of_newest(folder: str, newest: Newest | None, wrong: str, *, is_loaded: bool) -> Finding:
    """Returns the finding about the newest checkpoint.

    `wrong`: its defect. `is_loaded`: the run resumes from this folder.
    """
    if newest is None:
        return Finding(
            status=PASS,
            measured=f"{folder} is writable, no checkpoint yet",
            expected="writable",
            whence=ASKED,
        )
    follows = bool(newest.follows and newest.wrong)
    what = newest.follows if follows else newest.name
    why = newest.wrong or wrong
    if not why:
        return Finding(
            status=PASS,
            measured=f"{folder} is writable, {newest.name} looks complete",
            expected="writable, and the newest checkpoint is complete",
            whence=ASKED,
        )
    sure = is_loaded and follows
    return Finding(
        status=FAIL if sure else WARN,
        device=folder,
        measured=f"{what}: {why}",
        expected="the newest checkpoint is complete",
        whence=ASKED,
        why=f"the run cannot resume from {folder}: {what}: {why}",
        advice=_advice(newest, follows),
        fault=ENVIRONMENT_FAULT if sure else "",
        category="checkpoint_load_error",
    )


def _advice(newest: Newest, follows: bool) -> Words:
    if follows:
        return Words(
            en=f"Write the name of the newest complete checkpoint into {newest.follows}, or remove it to start from the beginning.",
            zh=f"请将最近一个完整检查点写入 {newest.follows}，或删除该文件以从头开始。",
        )
    return Words(
        en=f"Move {newest.name} away and resume from the one before it.",
        zh=f"请移走 {newest.name}，从前一个检查点恢复。",
    )


def of_unwritable(folder: str, error: str, category: str, *, is_sure: bool) -> Finding:
    """Returns the finding for a checkpoint folder to which no file can be written."""
    return Finding(
        status=FAIL,
        device=folder,
        measured=error,
        expected="a writable folder",
        whence=ASKED,
        why=f"no checkpoint can be written to {folder}: {error}",
        advice=Words(
            en="Give the user of the run the right to write there, free some space, or choose another folder.",
            zh="请授予运行用户写权限、清理空间，或更换检查点目录。",
        ),
        fault=ENVIRONMENT_FAULT if is_sure else "",
        category=category,
    )
