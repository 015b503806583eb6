"""Translates the reasons why a file was not read from English to Chinese."""

import re

from holdfast.late_pattern import late
from holdfast.observe.logs.tree import WHY_OWN
from holdfast.views.languages import Language

REST = "：其余部分未读取"
# Captures stand as they are: names, numbers, and what the system says of an error.
_CHINESE = (
    (re.escape(WHY_OWN), "为 Holdfast 自身文件，不是日志"),
    (r"it is a named pipe, not a file", "为命名管道，不是文件"),
    (r"it is a socket, not a file", "为套接字，不是文件"),
    (r"it is a device, not a file", "为设备，不是文件"),
    (r"it is something else, not a file", "不是普通文件"),
    (r"it is no longer a regular file", "已不再是普通文件"),
    (r"it is a circular link", "符号链接成环"),
    (r"it is a broken link", "符号链接指向不存在的文件"),
    (r"it is the same file as (.+), through a link", "与 {0} 相同（链接）"),
    (r"it does not exist", "不存在"),
    (r"this user has no permission to read it", "当前用户无读取权限"),
    (r"it cannot be (?:read|opened): (.+)", "无法读取：{0}"),
    (r"reading failed(?: at byte (\d+))?: (.+)", "读取失败：{1}"),
    (r"more than (\d+) files: this and the rest were not read", "文件超过 {0} 个，此文件及其余未读取"),
    (r"(\d+) more files were not read, or not completely", "另有 {0} 个文件未读取或未读完"),
    (r"it was truncated to (\d+) bytes while it was read", "读取过程中被截短至 {0} 字节"),
    (r"it is a binary file", "为二进制文件"),
    (r"it is a database", "为数据库"),
    (r"it is an image", "为图片"),
    (r"it is a NumPy array", "为 NumPy 数组文件"),
    (r"it is a PDF", "为 PDF"),
    (r"it is a program or a core dump", "为可执行程序或 core 转储"),
    (r"it is a pickle, which is not opened", "为 pickle 文件，不予打开"),
    (r"it contains model weights \(safetensors\)", "为权重文件（safetensors）"),
    (r"it is a checkpoint of PyTorch, not a log", "为 PyTorch 检查点，不是日志"),
    (r"it is a flight record or a stack dump, not a log", "为 flight recorder 记录或调用栈，不是日志"),
    (r"it is encrypted", "已加密"),
    (r"it is a (7z|rar) archive: unpack it first", "为 {0} 压缩包：请先解压"),
    (r"it is packed with lz4: unpack it first", "为 lz4 压缩文件：请先解压"),
    (
        r"it is a zip archive within another, or on stdin: unpack it first",
        "嵌套的或来自标准输入的 zip：请先解压",
    ),
    (r"it is compressed or archived more than (\d+) times", "压缩嵌套超过 {0} 层"),
    (r"it unpacks to more than (\d+) GiB: the rest was not read", "解压后超过 {0} GiB" + REST),
    (r"it unpacks to more than (\S+) times its size.*", "解压后超过原大小的 {0} 倍" + REST),
    (r"it has more than (\d+) members: the rest was not read", "成员超过 {0} 个" + REST),
    (r"its packed data is truncated; the existing part was read", "压缩数据不完整，已读取现有部分"),
    (r"(?:its|the) archive is truncated.*; the existing part was read", "归档不完整，已读取现有部分"),
    (r"(?:it|the archive) is damaged: (.+)", "已损坏：{0}"),
    (r"its name contains no rank number", "文件名中没有 rank"),
)
_KNOWN = tuple((late(pattern), text) for pattern, text in _CHINESE)


def why_in(why: str, language: Language) -> str:
    """Translates the reason why a file was not read; returns it unchanged if no translation is known."""
    if language != "zh":
        return why
    for pattern, text in _KNOWN:
        if said := pattern.fullmatch(why):
            return text.format(*(part or "" for part in said.groups()))
    return why
