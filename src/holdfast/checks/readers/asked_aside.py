"""Runs operations that a dead mount may block forever, each in its own process with a deadline.

A process that does not finish in time is killed, or abandoned if the kernel blocks it.
"""

import os
import selectors
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

AT_ONCE = 64
BUSY_TIMES = 5.0  # of the deadline, for a process that is on a processor or waits for one
LOOK_S = 0.2  # at one that is late
ANSWER_BYTES_MAX = 1 << 20


class Answer(Struct, frozen=True):
    """The result of one operation that ran in a child process.

    `error`: an errno, 0 if there was none. `hangs`: True if the operation did not finish in time; `where` is then the
    system call that blocks it, or empty if unknown. `seconds`: the time it took.
    """

    value: dict[str, float | int | str] = {}
    error: int = 0
    hangs: bool = False
    where: str = ""
    seconds: float = 0.0


Question = Callable[[], dict[str, float | int | str]]


class _Asked(Struct):
    place: int
    pid: int
    channel: int
    began_s: float
    text: bytes = b""


def ask_all(questions: Sequence[Question], within_s: float) -> list[Answer]:
    """Runs all operations in child processes, a few at once, and returns the results in the order of
    `questions`.

    `within_s`: the time limit of each operation, from its own start.
    """
    waiting = list(enumerate(questions))
    answers: list[Answer] = [Answer(hangs=True)] * len(questions)
    running: dict[int, _Asked] = {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                place, question = waiting.pop(0)
                asked = _begin(place, question)
                running[asked.channel] = asked
                selector.register(asked.channel, selectors.EVENT_READ)
            first_s = min(asked.began_s for asked in running.values())
            ready = selector.select(max(LOOK_S, first_s + within_s - time.monotonic()))
            for key, _ in ready:
                asked = running[key.fd]
                if _read(asked):
                    answers[asked.place] = _answer(asked)
                    _end(selector, running, asked)
            for asked in list(running.values()):
                if _is_late(asked, within_s):
                    answers[asked.place] = _late_answer(asked)
                    _end(selector, running, asked)
    return answers


def _begin(place: int, question: Question) -> _Asked:
    theirs_out, theirs_in = os.pipe2(os.O_CLOEXEC)
    began_s = time.monotonic()
    with warnings.catch_warnings():
        # Of threads of the parent, which hold no lock that the child takes: it only asks, writes and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(theirs_out)
        _answer_in_child(question, theirs_in)
    os.close(theirs_in)
    os.set_blocking(theirs_out, False)
    return _Asked(place, pid, theirs_out, began_s)


def _answer_in_child(question: Question, channel: int) -> None:
    """Runs one operation in the child process, writes the result to a pipe and exits. Never returns."""
    try:
        answer = Answer(value=question())
    except OSError as error:
        answer = Answer(error=error.errno or -1)
    finally:
        with suppress(BaseException):
            os.write(channel, msgspec.json.encode(answer))
        os._exit(0)


def _read(asked: _Asked) -> bool:
    """Reads the available output of a child process. Returns True once the child has closed its end."""
    with suppress(BlockingIOError):
        while part := os.read(asked.channel, ANSWER_BYTES_MAX):
            asked.text += part
        return True
    return False


def _answer(asked: _Asked) -> Answer:
    seconds = time.monotonic() - asked.began_s
    try:
        answer = msgspec.json.decode(asked.text, type=Answer)
    except msgspec.MsgspecError:
        return Answer(error=-1, seconds=seconds)
    return msgspec.structs.replace(answer, seconds=seconds)


def _is_late(asked: _Asked, within_s: float) -> bool:
    passed_s = time.monotonic() - asked.began_s
    if passed_s < within_s:
        return False
    state = ""
    with suppress(OSError), open(f"/proc/{asked.pid}/stat", encoding="ascii", errors="replace") as file:
        state = file.read().rpartition(") ")[2][:1]
    return state != "R" or passed_s > within_s * BUSY_TIMES


def _late_answer(asked: _Asked) -> Answer:
    """Returns the result of a child process that was late, and not running, when it was looked at."""
    # It may have ended just before that look: an ended process does not run, as one that hangs.
    return _answer(asked) if _read(asked) else _hung(asked)


def _hung(asked: _Asked) -> Answer:
    where = ""
    with suppress(OSError), open(f"/proc/{asked.pid}/wchan", encoding="ascii", errors="replace") as file:
        where = file.read().strip()
    return Answer(hangs=True, where="" if where == "0" else where, seconds=time.monotonic() - asked.began_s)


def _end(selector: selectors.BaseSelector, running: dict[int, _Asked], asked: _Asked) -> None:
    selector.unregister(asked.channel)
    os.close(asked.channel)
    del running[asked.channel]
    with suppress(ProcessLookupError):
        os.kill(asked.pid, signal.SIGKILL)
    give_up_s = time.monotonic() + 0.05
    while time.monotonic() < give_up_s:
        with suppress(ChildProcessError):
            if os.waitpid(asked.pid, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
                continue
        return
