"""msgspec's classes in threads."""

import subprocess
import sys

import msgspec

from holdfast import struct_types

# Four threads decode a class of many classes for the first time. Unprepared, six of six such processes were ended by SIGSEGV.
THREADS = """
import sys, threading, msgspec
from holdfast import struct_types
sys.setswitchinterval(1e-6)
parts = [msgspec.defstruct(f"Part{n}", [("a", "int"), ("b", "list[str] | None", None)]) for n in range(60)]
for _ in range(20):
    whole = msgspec.defstruct("Whole", [(f"p{n}", part) for n, part in enumerate(parts)])
    struct_types.prepare()
    data = msgspec.json.encode({f"p{n}": {"a": n, "b": ["x"]} for n in range(60)})
    together = threading.Barrier(4)
    def decode():
        together.wait()
        assert msgspec.json.decode(data, type=whole).p59.a == 59
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
print("decoded")
"""


class _Cannot(msgspec.Struct):
    """No field of two classes without tags can be decoded."""

    both: "_Left | _Right"


class _Left(msgspec.Struct):
    a: int = 0


class _Right(msgspec.Struct):
    a: int = 0


def test_classes_that_cannot_be_decoded_are_left_out():
    assert struct_types.prepare() > 3


def test_threads_decode_a_class_for_the_first_time():
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout) == (0, "decoded\n"), done.stderr
