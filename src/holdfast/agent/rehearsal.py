"""Collects the evidence about a made-up failure once, in the thread that loads the signatures.

The first failure of a job then finds its patterns compiled: that took 0.2 s of processor time between a
rank's end and the restart. Where verdicts are made, `rehearsed_verdict.py` makes one on it.
"""

from msgspec import Struct

from holdfast.agent.watch.logs import Signatures
from holdfast.core.verdict.first import first_verdict
from holdfast.core.verdict.launcher_words import Known, launcher_words
from holdfast.model.failures import ErrorRecord, Failure, RankExit
from holdfast.model.matches import Search, Source
from holdfast.model.verdicts import Verdict
from holdfast.observe.logs.follow import Chunk
from holdfast.parsers.elastic import failed_lines, failure_table
from holdfast.parsers.signature_files import SignatureError
from holdfast.parsers.tracebacks.read import tracebacks

# In the form of a rank whose peer is gone, and of torchrun, whose other rank was killed.
LOGS = {
    "rank-0.log": """\
step 10/100 loss 2.31
[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 20, in <module>
[rank0]:     main()
[rank0]:   File "/job/train.py", line 12, in main
[rank0]:     loss.backward()
[rank0]:   File "/lib/python3.11/site-packages/torch/_tensor.py", line 600, in backward
[rank0]:     torch.autograd.backward(
[rank0]:            ^^^^^^^^^^^^^^^^^^^^^^^^
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:500] Connection closed by peer [127.0.0.1]:1000
""",
    "stderr": """\
W0101 00:00:00.000000 10 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 20 closing signal SIGTERM
E0101 00:00:00.000000 10 torch/distributed/elastic/multiprocessing/api.py:900] failed (exitcode: -9) local_rank: 1 (pid: 21) of binary: /bin/python
Traceback (most recent call last):
  File "/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/lib/python3.11/site-packages/torch/distributed/run.py", line 1000, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
train.py FAILED
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 21)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 21
======================================================
""",
}
EXITS = (
    RankExit(rank=1, pid=21, code=-9, at_s=1.0),
    RankExit(rank=0, pid=20, code=-15, at_s=2.0),
)


class MadeUp(Struct, frozen=True):
    """The first verdict on the made-up failure, and the search of its logs."""

    first: Verdict
    search: Search


def rehearse_evidence(signatures: Signatures) -> MadeUp:
    """Returns what is known of the made-up failure, by the same functions as of a real one.

    Raises SignatureError if the signatures cannot be used.
    """
    watcher = signatures.watcher()
    if watcher is None:
        raise SignatureError(signatures.why_not)
    lines = {name: text.encode().splitlines() for name, text in LOGS.items()}
    chunks = [Chunk(name, 1.0, 0, of_log) for name, of_log in lines.items()]
    matches = watcher.look(chunks)
    sources = tuple(Source(name=name, size_bytes=len(LOGS[name])) for name in watcher.sources)
    search = Search(sources=sources, matches=matches)
    found = [one for of_log in lines.values() for one in tracebacks(of_log)]
    table = failure_table(lines["stderr"])
    failed_lines(lines["stderr"])
    errors = tuple(
        ErrorRecord(rank=0, type=one.type, message=one.message, frame=one.user_frame or "") for one in found
    )
    failure = Failure(
        exits=EXITS,
        errors=errors[:1],
        tracebacks=errors,
        elastic=tuple(RankExit(rank=row.rank, pid=row.pid, code=row.code, at_s=1.0) for row in table),
        launcher_words=launcher_words(search, signatures.by_id, Known()),
    )
    return MadeUp(first_verdict(failure), search)
