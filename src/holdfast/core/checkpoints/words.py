"""Says in English and Chinese what became of a checkpoint and of its copy in memory. Pure."""

from collections.abc import Mapping

from holdfast.core.checks.node_findings import size
from holdfast.core.plurals import counted
from holdfast.model.events import Numbers
from holdfast.model.signatures import Words

KIND = "ram-checkpoint"  # of the finding
# What has happened to the checkpoint of a failed attempt, the gravest first.
OUTCOMES = ("gone", "failed", "slow", "restored", "newer", "intact")


def graver(one: Numbers, other: Numbers) -> Numbers:
    """Returns the finding that matters more to people: several nodes report one each. What became of a copy while the
    training ran is none of an incident's.
    """
    known = [numbers for numbers in (one, other) if numbers.get("outcome") in OUTCOMES]
    return min(known, key=lambda numbers: OUTCOMES.index(str(numbers["outcome"])), default={})


def checkpoint_words(numbers: Mapping[str, object]) -> Words:
    """Describes a finding from its numbers: `outcome`, `path`, `copy`, `bytes`, `files`, `text`, `aside`, `beside`."""
    known = {key: str(numbers.get(key, "")) for key in ("outcome", "path", "copy", "text", "aside", "beside")}
    words = _of_copy(known, numbers) or _of_disk(known, numbers)
    if known["beside"]:
        words = Words(
            en=f"{words.en}; a newer one is not complete: {known['beside']}",
            zh=f"{words.zh}；更新的检查点不完整：{known['beside']}",
        )
    return words


def _of_disk(known: Mapping[str, str], numbers: Mapping[str, object]) -> Words:
    """What the comparison before a start has found."""
    path, copy, text = known["path"], known["copy"], known["text"]
    where = Words(
        en=f"its copy in memory is {copy} (HOLDFAST_RAM_CHECKPOINT)",
        zh=f"内存副本位于 {copy}（HOLDFAST_RAM_CHECKPOINT）",
    )
    match known["outcome"]:
        case "intact":
            took = _number(numbers, "took_s")
            return Words(
                en=f"the checkpoint {path} is as it was saved (compared with its copy in memory in {took:.2g} s)",
                zh=f"检查点 {path} 完好（与内存副本比对，用时 {took:.2g} 秒）",
            )
        case "newer":
            return Words(
                en=f"the disk has a newer checkpoint than the copy of {path} in memory: nothing is restored",
                zh=f"磁盘上的检查点比内存副本 {path} 更新：不恢复",
            )
        case "restored":
            return _restored(known, numbers)
        case "slow":
            return Words(
                en=f"the checkpoint {path} could not be compared with its copy in time; {where.en}",
                zh=f"未能按时比对检查点 {path}；{where.zh}",
            )
        case "failed":
            return Words(
                en=f"the checkpoint {path} is damaged or gone and could not be restored: {text}; {where.en}",
                zh=f"检查点 {path} 损坏或丢失，且无法恢复：{text}；{where.zh}",
            )
        case _:
            return Words(
                en=f"the checkpoint {path} is out of reach: {text}; {where.en}",
                zh=f"无法访问检查点 {path}：{text}；{where.zh}",
            )


def _restored(known: Mapping[str, str], numbers: Mapping[str, object]) -> Words:
    missing, damaged = int(_number(numbers, "missing")), int(_number(numbers, "damaged"))
    files, much = int(_number(numbers, "files")), size(_number(numbers, "bytes"))
    en_why = ", ".join(
        [f"{counted(missing, 'file')} gone"] * bool(missing)
        + [f"{counted(damaged, 'file')} damaged"] * bool(damaged)
    )
    zh_why = "，".join([f"{missing} 个文件丢失"] * bool(missing) + [f"{damaged} 个文件损坏"] * bool(damaged))
    aside_en = f"; the damaged content is kept as {known['aside']}" if known["aside"] else ""
    aside_zh = f"；损坏的内容保留为 {known['aside']}" if known["aside"] else ""
    path, took = known["path"], _number(numbers, "took_s")
    return Words(
        en=f"the checkpoint {path} was restored from memory ({en_why}): {counted(files, 'file')}, {much}, "
        f"in {took:.2g} s{aside_en}",
        zh=f"已从内存恢复检查点 {path}（{zh_why}）：{files} 个文件，{much}，用时 {took:.2g} 秒{aside_zh}",
    )


def _of_copy(known: Mapping[str, str], numbers: Mapping[str, object]) -> Words | None:
    """What became of a copy while the training runs; None for another outcome."""
    path, text, much = known["path"], known["text"], size(_number(numbers, "bytes"))
    match known["outcome"]:
        case "copied":
            took = _number(numbers, "took_s")
            return Words(
                en=f"the checkpoint {path} is copied to memory: {much} in {took:.2g} s, at {known['copy']}",
                zh=f"检查点 {path} 已复制到内存：{much}，用时 {took:.2g} 秒，位于 {known['copy']}",
            )
        case "refused":
            return Words(
                en=f"the checkpoint {path} ({much}) is not copied to memory: {text}",
                zh=f"检查点 {path}（{much}）未复制到内存：{text}",
            )
        case "replaced":
            return Words(
                en=f"memory holds one checkpoint of {much} only: the old copy is dropped before each new one is made",
                zh=f"内存只容纳一个 {much} 的检查点：每次先删除旧副本，再制作新副本",
            )
        case "dropped":
            return Words(
                en=f"the copy of {path} in memory ({much}) is dropped: {text}",
                zh=f"已删除内存中 {path} 的副本（{much}）：{text}",
            )
        case "left-out" | "copy-failed":
            return Words(en=f"not copied to memory: {text}", zh=f"未复制到内存：{text}")
        case _:
            return None


def _number(numbers: Mapping[str, object], key: str) -> float:
    value = numbers.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
