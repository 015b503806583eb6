"""Signatures and lines that tests of the search share."""

from observe.knowing import signature

OOM = signature("oom", r"CUDA out of memory\. Tried to allocate (?P<bytes>[\d.]+ \wiB)")
XID = signature("xid", r"NVRM: Xid \(PCI:(?P<device>[\w:.]+)\): (?P<xid>\d+)", category="xid_{xid}")
NOTE = signature("note", r"NCCL INFO (?P<what>\w+)", role="context")
TIMEOUT = signature(
    "timeout", r"\[Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout", role="symptom"
)
END = signature("end", r"^finished$", role="end-ok")
TRACEBACK = signature("python-traceback-start", r"Traceback \(most recent call last\)", role="context")
ALL = (OOM, XID, NOTE, TIMEOUT, END, TRACEBACK)

STEP = b"2026-03-01 10:00:00 step %d/5000 | loss: 2.5000 | lr 3e-4\n"
OOM_LINE = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0\n"
FAULT = b"[rank3]: RuntimeError: bad batch\n"
TRACE = b"""\
Traceback (most recent call last):
  File "/data/train.py", line 88, in step
    loss.backward()
  File "/opt/lib/python3.11/site-packages/torch/_tensor.py", line 5, in backward
    run()
"""


MUCH = b"\n" * (2 << 20)  # so much that the signatures are compiled
