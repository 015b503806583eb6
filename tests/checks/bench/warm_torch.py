"""Runs scripts as Python would, in forks of a process that has imported torch: each import costs 1.7 s of CPU.

    python warm_torch.py NAME                 says that it is ready, and waits for those who ask, until its stdin ends
    python warm_torch.py NAME SCRIPT ARG…     asks for a run of the script; ends with its exit code or signal

The script gets the arguments, the environment, the folder and the files 0 to 2 of who asks, and is killed if that one
ends first. What a library reads when it is loaded, such as OMP_NUM_THREADS, is not read again.
"""

import json
import os
import select
import signal
import socket
import sys

STANDARD_FILES = (0, 1, 2)
REQUEST_BYTES_MAX = 1 << 18


def ask(name: str, words: list[str]) -> None:
    """Ends as the script does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
        asker.connect("\0" + name)
        asked = {"words": words, "env": dict(os.environ), "folder": os.getcwd()}
        socket.send_fds(asker, [json.dumps(asked).encode()], STANDARD_FILES)
        status = int(asker.recv(100))
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def serve(name: str) -> None:
    """Whoever asks while torch is imported waits."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who run scripts
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind("\0" + name)
        door.listen(100)
        print("ready", flush=True)  # noqa: T201
        import_module("torch").set_num_threads(1)  # a thread of the library would not be in a fork
        while door in select.select([door, sys.stdin], [], [])[0]:
            asker, _ = door.accept()
            if os.fork() == 0:
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                attend(asker)
            asker.close()


def attend(asker: socket.socket) -> None:
    """Runs the script in a process of its own and says how it ended. Never returns."""
    text, files, _, _ = socket.recv_fds(asker, REQUEST_BYTES_MAX, len(STANDARD_FILES))
    asked = json.loads(text)
    script = os.fork()
    if script == 0:
        asker.close()
        for number, file in zip(STANDARD_FILES, files, strict=True):
            os.dup2(file, number)
            os.close(file)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["env"])
        os._exit(run(asked["words"]))
    ended = os.pidfd_open(script)
    readable, _, _ = select.select([asker, ended], [], [])
    if ended not in readable:
        os.kill(script, signal.SIGKILL)
    _, status = os.waitpid(script, 0)
    if ended in readable:
        asker.send(str(status).encode())
    os._exit(0)


def run(words: list[str]) -> int:
    """The exit code of a script that was run in this process."""
    sys.argv = words
    sys.path[0] = os.path.dirname(words[0])
    try:
        run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself ends
        print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        ask(sys.argv[1], sys.argv[2:])
    from importlib import import_module  # those who ask need none of these
    from runpy import run_path
    from traceback import print_exc

    serve(sys.argv[1])
