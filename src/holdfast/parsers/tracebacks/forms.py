"""Defines patterns of tracebacks as Python, IPython, rich and Ray print them. Data only.

source: CPython, Lib/traceback.py; IPython, core/ultratb.py; rich, traceback.py; Ray, exceptions.py; torch, _utils.py
("Original Traceback") and multiprocessing/spawn.py ("-- Process 0 terminated ...")
"""

import re

from holdfast.late_pattern import late

TITLE = late(r"Traceback \(most recent call last\)(?P<colon>:?)[\s─━\-+╮┐|]*$")
NOTEBOOK = late(r"(?P<type>[A-Za-z_][\w.]*) {2,}$")
FRAME = late(r'File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9})(?:, in (?P<function>[\w.<>]{1,200}))?')
FRAME_START = late(r'[ \t]*File "')
END = late(r"(?P<type>[^\W\d][\w.]{0,200}(?:\.<locals>\.[\w.]{1,200})?)(?:: ?(?P<message>.*))?$")
INTERRUPT = late(r"KeyboardInterrupt(?=[a-z ])")  # with the next rank's line on the same line
CHAINED = late(
    r"During handling of the above exception, another exception occurred:|"
    r"The above exception was the direct cause of the following exception:"
)
# The text after it is the same exception, as printed in the process that raised it.
INNER = late(r"-- Process \d{1,6} terminated with the following error:$")
REMOTE = late(
    r"ray::[\w.:<>\[\]-]{1,200}\(\) \((?:pid=(?P<pid>\d{1,9}))?(?:, )?(?:ip=(?P<host>[\w.:-]{1,60}))?[^()]{0,400}"
)
RANK_FIELD = late(r"^ *rank +: (?P<rank>\d{1,9}) \(local_rank: (?P<local>\d{1,9})\)")  # of torchrun's table
FIELD_BEFORE = late(r" *traceback *: $")

BARE = frozenset(("SyntaxError", "IndentationError", "TabError"))
PLAIN_NAMES = frozenset(("Exception", "Error", "Warning"))
# An exception's name, with or without its module; other words before a colon are mostly further log lines.
NAMED = late(
    r"(?:.*\.)?_*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration|Warning|Fault|Failure|Failed|Timeout|Abort|Aborted"
    r"|Cancelled|Empty|Full|Group|Signal|Died|Killed|NotFound|Unavailable|Exceeded|Denied|Violation|OutOfMemory)\w{0,8}$"
    r"|(?:[a-z_]\w*\.)+(?:error|timeout|gaierror|herror|exit|_?[A-Z]\w*)$"
    r"|_*(?:[A-Z][a-z0-9]+){2,}$|[A-Z]\w*\.<locals>\..*|\w+\.<locals>\.[A-Z]\w*$"
)
# After these, a message continues in lines that are not indented.
GOES_ON = late(r"nccl\w{1,40}(?:Error|InProgress): |Last error:|Cuda failure|HINT:|Original Traceback")

BOX_TOP = late(r"[╭┌+] ?[─━-]{2}")
BOX_LINE = late(r"[│|](?P<content>.*?)[│|]?\s*$")
BOX_END = late(r"[╰└+][─━-]{2,}")
BOX_SOURCE = late(r"(?:[❱>] ?)?\d{1,7} ?[│|]|[│|╭╰+]|[.]{3}")
BOX_FRAME = late(r"(?P<file>\S.*?): ?(?P<line>\d{1,9}) ?in ?(?P<function>[\w.<>]{1,200})$")

NOTEBOOK_FRAME = late(
    r"File (?P<file>\S.*?):(?P<line>\d{1,9}), in (?P<function>[\w.<>]{1,200})"
    r"|(?P<cell>Cell In ?\[\d{1,9}\]), line (?P<cell_line>\d{1,9})"
)
NOTEBOOK_OLD = late(r"(?P<file>[~/]\S{1,500}|<ipython-input-[^>]{1,100}>) in (?P<function>[\w.<>]{1,200})")
NOTEBOOK_ARROW = late(r"-{2,6}> ?(?P<line>\d{1,9})")

INSTALLED = late(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d|[/\\]Lib[/\\]|^<(?!ipython)|\.pyx$|\.egg[/\\]"
    r"|[/\\]pytorch[\w.-]*[/\\]torch[/\\]|torchinductor_|inductor_cache|[/\\]bin[/\\][\w-]+$|^(?:torch|numpy|h5py)[/\\]"
    r"|[/\\]holdfast[/\\]shim[/\\]"  # wraps functions of the frameworks; Holdfast may be installed anywhere
)
# Frameworks run from a checkout of their source: not the user's code, but used if there is no other frame.
FRAMEWORK = late(
    r"[/\\](?:[\w-]*deepspeed[\w-]*[/\\]deepspeed|accelerate[/\\]src[/\\]accelerate"
    r"|transformers[/\\]src[/\\]transformers|vllm[/\\]vllm|ray[/\\]python[/\\]ray|jax[/\\]jax|triton[/\\]python[/\\]triton"
    r"|peft[/\\]src[/\\]peft|colossalai[/\\]colossalai|apex[/\\]apex|xformers[/\\]xformers|ao[/\\]torchao"
    r"|sglang[/\\]python[/\\]sglang|flash-attention[/\\]flash_attn|lightning[/\\]src)[/\\]",
    re.IGNORECASE,
)


def is_installed(file: str) -> bool:
    """Returns whether the file belongs to Python or an installed library, not to the user."""
    return INSTALLED.search(file) is not None


def is_framework(file: str) -> bool:
    """Returns whether the file belongs to a framework's source checkout."""
    return FRAMEWORK.search(file) is not None


def ended(text: str) -> tuple[str, str] | None:
    """Returns type and message of the exception in this line, without its indentation; None if
    there is none.
    """
    end = END.match(text)
    if end and (NAMED.match(end["type"]) or (end["type"] in PLAIN_NAMES and end["message"])):
        return end["type"], end["message"] or ""
    if INTERRUPT.match(text):
        return "KeyboardInterrupt", ""
    return None
