"""Collects one traceback line by line, for `tracebacks.read`. Pure; never raises on its input."""

import re

from msgspec import Struct

from holdfast.parsers.tracebacks import forms

MESSAGE_MAX = 2000
MESSAGE_LINES_MAX = 20
ASKED_LINES_MAX = 8  # of a message that follows its colon unindented
CHAIN_LINES_MAX = 8  # between an exception and the words that chain the next one to it
FOREIGN_MAX = 50  # lines of other writers, without a prefix, within a traceback
FOREIGN_MIXED_MAX = 400  # the same per mixed rank: C++ stacks may be between their exceptions
FOREIGN_CUT_MAX = 3  # the same without a title: it may only be a stack
FRAMES_MAX = 2000
PREFIX_MAX = 200
MODULE = " <module>"


class Whose(Struct, frozen=True):
    """The writer of a line, without times. `label`: label that srun puts before the line, which numbers ranks or
    nodes.
    """

    rank: int | None = None
    local_rank: int | None = None
    worker: int | None = None
    host: str | None = None
    pid: int | None = None
    label: int | None = None


class Line(Struct, frozen=True):
    """One line of a log, with its prefix parsed."""

    number: int
    text: str  # without its prefix
    has_stamp: bool = False
    is_hook: bool = False  # after torch's own `[rank1]: `, or a launcher's `[rank1]:` and a space


class Open(Struct, eq=False):
    """A traceback that is being read.

    `state`: "frames"; "ended": the exception is known, its message may continue; "linked": another exception
    of the chain follows; "inner": the same one follows, as printed in its own process. `style`: "plain";
    "box": rich's; "notebook": IPython's; "cut": it began with a frame.
    """

    whose: Whose  # writer of the title
    lines_of: Whose  # writer of the following lines, mostly the same
    first_line: int
    last_line: int
    has_stamp: bool = False
    is_hook: bool = False  # its title follows torch's own `[rank1]: `, and so does all of its message
    style: str = "plain"
    headline: str = ""  # notebook: the type in the title
    prefix: re.Pattern[str] | None = None  # further text before each line; a guess until another line has it
    prefix_seen: bool = False
    indent: int = 0  # of the whole traceback, by its first frame
    state: str = "frames"
    starts: int = 1  # number of titles, which is the number of exceptions that follow
    is_mixed: bool = False
    frame: str = ""
    has_function: bool = False  # a frame has a function; otherwise only a syntax error has a position
    user_frames: list[str] = []
    framework_frame: str = ""
    outer_frame: str = ""  # the user's frame in an earlier part of the chain
    outermost: str = ""  # first frame of the whole chain; a module's own line, if any part has one
    pending: str = ""  # box: a frame that may be wrapped; notebook: one whose line number follows later
    type: str = ""
    message: str = ""
    error_line: int = 0
    message_lines: int = 0
    asks_more: bool = False  # the message follows later
    foreign_lines: int = 0
    idle_lines: int = 0  # lines of its writer since the last that was part of it
    first: tuple[str, str] | None = None
    table_rank: tuple[int, int] | None = None
    remote_host: str | None = None
    remote_pid: int | None = None

    @property
    def user_frame(self) -> str:
        """Returns the innermost frame of the user's code; if frames of several ranks are mixed, the last one."""
        return self.user_frames[-1] if self.user_frames else self.outer_frame or self.framework_frame


def opened(whose: Whose, line: Line, before: str, *, has_colon: bool) -> Open:
    """Returns a new traceback whose title is in this line. `before`: the text in front of the title."""
    one = Open(
        whose=whose,
        lines_of=whose,
        first_line=line.number,
        last_line=line.number,
        has_stamp=line.has_stamp,
        is_hook=line.is_hook,
    )
    if notebook := None if has_colon else forms.NOTEBOOK.match(before):
        one.style, one.headline = "notebook", notebook["type"].rpartition(".")[2]
    elif forms.BOX_TOP.search(before):
        one.style = "box"
    elif "Exception Group" in before:
        one.prefix = re.compile(r" {0,8}\|(?: |$)")
    elif before.strip() and before.strip() != "Original" and not forms.FIELD_BEFORE.match(before):
        one.prefix = _prefix(before[-PREFIX_MAX:])
    return one


def restart(one: Open, new: Open) -> None:
    """Starts another part of the same chain: a later exception, or the same one closer to its origin."""
    one.outer_frame = one.user_frame
    one.style, one.headline = new.style, new.headline
    one.state, one.frame, one.framework_frame, one.user_frames = "frames", "", "", []
    one.last_line, one.foreign_lines = new.first_line, 0


def own_text(one: Open, text: str) -> str | None:
    """Returns the line without the prefix of this traceback; None if it has another prefix, so it belongs to
    another one.
    """
    if one.prefix is None:
        return text
    if prefix := one.prefix.match(text):
        one.prefix_seen = True
        return text[prefix.end() :]
    if one.prefix_seen:
        return None
    one.prefix = None  # what stood before the title was no prefix
    return text


def belongs(one: Open, line: Line) -> bool:
    """Adds a line to the traceback; returns False if it is no part of it."""
    if one.state == "ended":
        return _after_end(one, line)
    if one.state != "frames":
        one.idle_lines += 1
        return not line.text.strip() and one.idle_lines <= CHAIN_LINES_MAX
    if line.has_stamp and not one.has_stamp:
        return _foreign(one)
    if one.style == "box":
        return _in_box(one, line)
    if one.style == "notebook":
        return _in_notebook(one, line)
    return _in_frames(one, line)


def is_frame(text: str) -> bool:
    """Returns whether the text is a traceback frame with a function name."""
    frame = forms.FRAME.search(text) if forms.FRAME_START.match(text) else None
    return frame is not None and frame["function"] is not None


def _prefix(before: str) -> re.Pattern[str]:
    """Returns a pattern for this prefix with any numbers, because times differ; spaces at its end may be
    missing.
    """
    parts = re.split(r"\d+", before.rstrip())
    return re.compile(r"\d+".join(re.escape(part) for part in parts) + r"(?: |$)?")


def _foreign(one: Open) -> bool:
    one.foreign_lines += 1
    if one.is_mixed:
        return one.foreign_lines <= FOREIGN_MIXED_MAX * one.starts
    return one.foreign_lines <= (FOREIGN_CUT_MAX if one.style == "cut" else FOREIGN_MAX)


def _in_frames(one: Open, line: Line) -> bool:
    text = line.text
    if frame := forms.FRAME.search(text):
        if not one.frame and forms.FRAME_START.match(text):
            one.indent = max(0, frame.start() - 2)
        _add_frame(one, line, frame["file"], frame["line"], frame["function"] or "")
        return True
    body = text[one.indent :]
    if not body.strip() or text[: one.indent].strip() == "" and body.startswith((" ", "\t")):
        one.last_line = line.number
        return True
    if remote := forms.REMOTE.search(body):
        _go_remote(one, line, remote)
        return True
    if end := forms.ended(body):
        _end(one, line, *end)
        return True
    return _foreign(one)


def _go_remote(one: Open, line: Line, remote: re.Match[str]) -> None:
    """Continues with the frames in a Ray worker, which Ray names, followed by the exception itself."""
    if end := forms.ended(line.text[one.indent :]):
        one.type, one.message, one.error_line = *end, line.number
    one.remote_host = remote["host"] or one.remote_host
    one.remote_pid = int(remote["pid"]) if remote["pid"] else one.remote_pid
    one.outer_frame, one.user_frames, one.framework_frame = one.user_frame, [], ""
    one.last_line, one.foreign_lines = line.number, 0


def _add_frame(one: Open, line: Line, file: str, number: str, function: str) -> None:
    place = f"{file}:{number} {function}".strip()
    one.outermost = one.outermost if one.outermost and one.frame else _further_out(one.outermost, place)
    one.frame = place
    one.has_function = one.has_function or bool(function)
    if forms.is_framework(file):
        one.framework_frame = place
    elif not forms.is_installed(file) and len(one.user_frames) < FRAMES_MAX:
        # Mixed ranks have the same frames: a frame that occurred before is another rank's, further out.
        if not one.is_mixed or place not in one.user_frames:
            one.user_frames.append(place)
    one.last_line, one.foreign_lines = line.number, 0
    one.has_stamp = one.has_stamp and line.has_stamp


def _further_out(outermost: str, place: str) -> str:
    """Returns the outer one of the first frames of two parts of a chain; a module's frame is outermost."""
    return outermost if outermost.endswith(MODULE) else place


def _end(one: Open, line: Line, type_: str, message: str) -> None:
    one.type, one.message, one.error_line = type_, message[:MESSAGE_MAX], line.number
    one.asks_more = line.text.rstrip().endswith(":")
    one.message_lines = 1
    one.last_line, one.foreign_lines, one.idle_lines = line.number, 0, 0
    one.state = "ended"


def _in_box(one: Open, line: Line) -> bool:
    text = line.text.strip()
    one.last_line = line.number
    if forms.BOX_END.match(text):
        one.style, one.pending = "plain", ""
        return True
    box = forms.BOX_LINE.match(text)
    if box is None:
        return _foreign(one)
    content = box["content"].strip()
    if not content or forms.BOX_SOURCE.match(content):
        one.pending = ""
    elif frame := forms.BOX_FRAME.match(one.pending + content):
        one.pending = ""
        _add_frame(one, line, frame["file"], frame["line"], frame["function"])
    else:
        one.pending = (one.pending + content)[-FRAMES_MAX:]
    return True


def _in_notebook(one: Open, line: Line) -> bool:
    text = line.text.rstrip()
    if frame := forms.NOTEBOOK_FRAME.match(text):
        if frame["cell"]:
            _add_frame(one, line, frame["cell"], frame["cell_line"], "")
        else:
            _add_frame(one, line, frame["file"], frame["line"], frame["function"])
    elif frame := forms.NOTEBOOK_OLD.match(text):
        one.pending = f"{frame['file']} {frame['function']}"
    elif one.pending and (arrow := forms.NOTEBOOK_ARROW.match(text)):
        file, _, function = one.pending.rpartition(" ")
        one.pending = ""
        _add_frame(one, line, file, arrow["line"], function)
    elif (end := forms.END.match(text)) and end["type"].rpartition(".")[2] == one.headline:
        _end(one, line, end["type"], end["message"] or "")
    return True


def _after_end(one: Open, line: Line) -> bool:
    """Adds a line after the exception.

    A message of several lines ends with an empty one; a chained traceback may follow.
    """
    body = line.text[one.indent :] if not line.text[: one.indent].strip() else line.text
    if forms.CHAINED.search(body):
        one.first = one.first or (one.type, one.message)
        one.state, one.last_line, one.idle_lines = "linked", line.number, 0
        return True
    if forms.INNER.match(body.strip()):
        one.state, one.last_line, one.idle_lines = "inner", line.number, 0
        return True
    one.idle_lines += 1
    if line.has_stamp and not one.has_stamp:
        return one.idle_lines <= CHAIN_LINES_MAX
    if not body.strip():
        if not one.asks_more or one.message.strip():
            one.message_lines = MESSAGE_LINES_MAX  # only a chain may follow now
    elif one.message_lines < MESSAGE_LINES_MAX and _is_message(one, body):
        one.message = f"{one.message}\n{body.rstrip()}"[:MESSAGE_MAX]
        one.message_lines += 1
        one.last_line, one.idle_lines = line.number, 0
    else:
        one.message_lines = MESSAGE_LINES_MAX
    return one.idle_lines <= CHAIN_LINES_MAX


def _is_message(one: Open, body: str) -> bool:
    """Returns whether a line belongs to the message: mostly only indented lines; others need a sign."""
    if body.startswith((" ", "\t")) or forms.GOES_ON.match(body):
        return True
    if one.asks_more:
        return one.message_lines <= ASKED_LINES_MAX
    return one.is_hook
