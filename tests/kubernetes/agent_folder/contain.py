"""Runs a command as a container of a restricted namespace does: own mounts and processes, read-only root, no rights.

    unshare --mount --pid --fork python contain.py ROOT UID INIT VOLUME=PATH... -- COMMAND...

CONTAINER is the command's environment, as JSON. INIT 1: the command is a child of a first process, else it is the first itself. A VOLUME is a folder of the host, mounted
writable at PATH below ROOT, read-only with PATH:ro. source:
https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

import ctypes
import json
import os
import sys

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, CAPABILITIES = 24, 38, 64
libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind, flags):
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, None):
        raise OSError(ctypes.get_errno(), f"mount {source} at {target}")


def main():
    cut = sys.argv.index("--")
    root, uid, init, *volumes = sys.argv[1:cut]
    command = sys.argv[cut + 1 :]
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount(root, root, "", MS_BIND)
    for volume in volumes:
        folder, _, path = volume.partition("=")
        path, _, how = path.partition(":")
        os.makedirs(root + path, exist_ok=True)
        mount(folder, root + path, "", MS_BIND)
        if how == "ro":
            mount(folder, root + path, "", MS_BIND | MS_REMOUNT | MS_RDONLY)
    os.makedirs(f"{root}/proc", exist_ok=True)
    mount("proc", f"{root}/proc", "proc", 0)
    mount(root, root, "", MS_BIND | MS_REMOUNT | MS_RDONLY)
    os.chroot(root)
    os.chdir("/")
    for number in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if int(init) and (child := os.fork()):
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.execve(command[0], command, json.loads(os.environ["CONTAINER"]))


main()
