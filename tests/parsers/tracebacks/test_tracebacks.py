"""Tracebacks in logs of one rank and of many: whose, what, where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.tracebacks.forms import is_installed
from holdfast.parsers.tracebacks.read import FOUND_MAX, tracebacks

PLAIN = """\
step 1 loss 0.5
Traceback (most recent call last):
  File "/home/user/train.py", line 20, in <module>
    main()
  File "/home/user/train.py", line 9, in step
    x.view(3)
    ^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 5, in view
    return f(x)
RuntimeError: shape '[3]' is invalid
  of size 4
step 2 loss 0.4
"""

CHAINED = """\
Traceback (most recent call last):
  File "/home/user/data.py", line 3, in load
    open(path)
FileNotFoundError: [Errno 2] No such file or directory: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/user/train.py", line 8, in <module>
    load()
ValueError
"""


def lines(text: str) -> list[bytes]:
    return text.encode().splitlines()


def prefixed(prefix: str, text: str) -> list[bytes]:
    return [line.encode() for line in prefixed_text(prefix, text)]


def prefixed_text(prefix: str, text: str) -> list[str]:
    return [f"{prefix}{line}" for line in text.splitlines()]


def test_one_rank():
    (found,) = tracebacks(lines(PLAIN))
    assert (found.type, found.message) == ("RuntimeError", "shape '[3]' is invalid\n  of size 4")
    assert found.frame == "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py:5 view"
    assert found.user_frame == "/home/user/train.py:9 step"
    assert (found.first_line, found.last_line, found.rank) == (1, 10, None)


def test_a_chain_is_one_traceback_with_its_first_and_last_exception():
    (found,) = tracebacks(lines(CHAINED))
    assert (found.first_type, found.type, found.message) == ("FileNotFoundError", "ValueError", "")
    assert found.user_frame == "/home/user/train.py:8 <module>"
    (found,) = tracebacks(prefixed("[rank3]: ", CHAINED))
    assert (found.first_type, found.rank, found.last_line) == ("FileNotFoundError", 3, 10)


def test_one_that_is_indented_by_a_tab_or_behind_a_numbered_line():
    for head in ("\t", "704.7s\t{}\t", "  {}\t"):
        text = "".join(
            head.format(number) + line for number, line in enumerate(PLAIN.splitlines(keepends=True))
        )
        (found,) = tracebacks(lines(text))
        assert (found.type, found.user_frame) == ("RuntimeError", "/home/user/train.py:9 step")


def test_prefixes_say_whose_it_is():
    for prefix, rank in (
        ("[rank2]: ", 2),
        ("      [rank2]: ", 2),
        ("[Rank 2] ", 2),
        ("[rank2]:", 2),
        ("[default2]:", None),
        ("[default2]:[rank2]: ", 2),
        ("2: ", 2),
        ("2026-11-20 21:45:36,123 [rank12]: ", 12),
        ("2026-11-20T21:45:36.123456789Z stderr F [rank2]: ", 2),
        ("[2026-11-20 21:45:36] ", None),
        ("worker-0 | ", None),
    ):
        (found,) = tracebacks(prefixed(prefix, PLAIN))
        assert (found.rank, found.type, found.user_frame) == (
            rank,
            "RuntimeError",
            "/home/user/train.py:9 step",
        ), prefix


def test_interleaved_ranks_are_distinguished_though_times_differ():
    one, two = prefixed("[rank1]: ", PLAIN), prefixed("[rank0]: ", CHAINED)
    mixed = [line for place in range(12) for line in (*one[place : place + 1], *two[place : place + 1])]
    timed = [b"2026-11-20 21:45:%02d " % place + line for place, line in enumerate(mixed)]
    for text in (mixed, timed):
        found = {one.rank: one for one in tracebacks(text)}
        assert (found[1].type, found[0].type, found[0].first_type) == (
            "RuntimeError",
            "ValueError",
            "FileNotFoundError",
        )


def test_lines_of_others_and_a_cut_end():
    text = PLAIN.replace("    main()\n", "INFO: eating\nepoch 3 of 4\n    main()\n")
    assert tracebacks(lines(text))[0].type == "RuntimeError"
    assert tracebacks(lines(PLAIN)[:5]) == ()
    two = tracebacks(lines(PLAIN) * 2)
    assert [one.first_line for one in two] == [1, 13]
    assert len(tracebacks(lines(PLAIN) * (FOUND_MAX + 5))) == FOUND_MAX


def test_colours_are_no_part_of_it():
    (found,) = tracebacks(lines(PLAIN.replace("RuntimeError", "\x1b[1;35mRuntimeError\x1b[0m")))
    assert found.type == "RuntimeError"


def test_the_rank_is_distinguished_from_the_local_rank_and_the_node():
    assert tracebacks(prefixed("[default2]:", PLAIN))[0].local_rank == 2
    labelled = prefixed("1: ", PLAIN)
    assert tracebacks(labelled)[0].rank == 1
    (found,) = tracebacks([*labelled, b"1: [rank13]: bye"])  # so the labels number nodes
    assert (found.rank, found.worker) == (None, 1)
    (found,) = tracebacks(prefixed("1: [rank13]: ", PLAIN))
    assert (found.rank, found.worker) == (13, 1)


def test_a_logger_before_each_line_or_before_the_title_alone():
    for prefix in (
        "(EngineCore_DP5 pid=3824) ERROR 11-20 21:45:36 [core.py:1138] ",
        "ERROR 11-20 21:45:36 [executor.py:772] ",
        "[app-3 step 17] ",
        "E1120 21:45:36.001000 4242 launch.py:11] ",
    ):
        (found,) = tracebacks(prefixed(prefix, PLAIN))
        assert (found.type, found.user_frame) == ("RuntimeError", "/home/user/train.py:9 step"), prefix
        (found,) = tracebacks(lines(PLAIN.replace("Traceback", prefix + "Traceback")))
        assert (found.type, found.user_frame) == ("RuntimeError", "/home/user/train.py:9 step"), prefix


def test_ranks_mixed_without_heads():
    once = PLAIN.splitlines()[1:11]
    mixed = [line.encode() for line in once for _ in range(4)]
    found = tracebacks(mixed)
    assert [(one.type, one.user_frame) for one in found] == [
        ("RuntimeError", "/home/user/train.py:9 step")
    ] * 4
    (last,) = tracebacks([*mixed[:-4], *lines(CHAINED)])[4:]
    assert (last.type, last.first_type) == ("ValueError", "FileNotFoundError")


def test_many_ranks_at_once():
    ranks = [prefixed(f"[rank{rank}]: ", CHAINED) for rank in range(500)]
    mixed = [line for row in zip(*ranks, strict=True) for line in row]
    found = tracebacks(mixed)
    assert [one.rank for one in found] == list(range(500))
    assert {(one.first_type, one.type) for one in found} == {("FileNotFoundError", "ValueError")}


def test_words_of_others_are_no_exception():
    for word in ("warmup_step:2/20", "Epoch: 3", "INFO: x", "loss: nan"):
        text = PLAIN.replace("    main()\n", f"    main()\n{word}\n")
        assert tracebacks(lines(text))[0].type == "RuntimeError", word


TABLE = """\
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_21:45:36
  host      : gpu-03
  rank      : 12 (local_rank: 4)
  exitcode  : 1 (pid: 4711)
  error_file: /tmp/e/attempt_0/4/error.json
  traceback : Traceback (most recent call last):
    File "/home/user/train.py", line 9, in step
      x.view(3)
    ^^^^^^^^^^^
  ValueError: bad shape

============================================================
"""


def test_the_table_of_torchrun():
    outer, inner = tracebacks(lines(TABLE))
    assert outer.type.endswith("ChildFailedError")
    assert (outer.user_frame, "train.py FAILED" in outer.message) == ("", True)
    assert (inner.type, inner.message, inner.rank, inner.local_rank) == ("ValueError", "bad shape", 12, 4)
    assert inner.user_frame == "/home/user/train.py:9 step"


REMOTE = """\
Traceback (most recent call last):
  File "/home/user/main.py", line 111, in main
    run(config)
  File "/opt/env/lib/python3.10/site-packages/ray/_private/worker.py", line 864, in get_objects
    raise value.as_instanceof_cause()
ray.exceptions.RayTaskError(ValueError): \x1b[36mray::Worker.fit()\x1b[39m (pid=34848, ip=10.1.31.5, actor_id=7c, repr=<W>)
  File "/home/user/worker.py", line 399, in fit
    self.load()
ValueError: bad shard
"""
ACTOR = """\
(Worker pid=58844) Exception raised in creation task: The actor died, ray::Worker.__init__() (pid=58844, ip=10.0.1.2)
(Worker pid=58844)   File "/home/user/worker.py", line 99, in __init__
(Worker pid=58844)     torch.cuda.set_device(local_rank)
(Worker pid=58844) RuntimeError: CUDA error: invalid device ordinal
(Worker pid=58844) Compile with `TORCH_USE_CUDA_DSA`.
"""


def test_ray():
    (found,) = tracebacks(lines(REMOTE))
    assert (found.type, found.message, found.user_frame) == (
        "ValueError",
        "bad shard",
        "/home/user/worker.py:399 fit",
    )
    assert (found.host, found.pid) == ("10.1.31.5", 34848)
    (found,) = tracebacks(lines(ACTOR))
    assert (found.type, found.pid) == ("RuntimeError", 58844)
    assert found.user_frame == "/home/user/worker.py:99 __init__"


def test_an_exception_carried_over_from_another_process_or_thread():
    text = PLAIN.splitlines()[1:]
    wrapped = [
        *CHAINED.splitlines()[:3],
        "RuntimeError: Caught ValueError in DataLoader worker process 0.",
        "Original " + text[0],
        *text[1:],
    ]
    (found,) = tracebacks("\n".join(wrapped).encode().splitlines())
    assert (found.type, found.user_frame) == ("RuntimeError", "/home/user/train.py:9 step")
    spawned = [
        *CHAINED.splitlines()[:3],
        "torch.multiprocessing.spawn.ProcessRaisedException: ",
        "",
        "-- Process 0 terminated with the following error:",
        *text,
    ]
    (found,) = tracebacks("\n".join(spawned).encode().splitlines())
    assert (found.type, found.message) == ("RuntimeError", "shape '[3]' is invalid\n  of size 4")


BOXED = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/user/train.py:20 in <module>                                           │
│                                                                              │
│   17 │   pass                                                                │
│ ❱ 20 │   main()                                                              │
│                                                                              │
│ /home/user/a/very/long/path/to/the/code/of/some/deeply/nested/package/data.p │
│ y:88 in load                                                                 │
│                                                                              │
│ ❱ 88 │   raise ValueError("x: 3 in all")                                     │
│ ╭── locals ──╮                                                               │
│ │ n = 3      │                                                               │
│ ╰────────────╯                                                               │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: x
"""


def test_rich():
    deep = "/home/user/a/very/long/path/to/the/code/of/some/deeply/nested/package/data.py:88 load"
    for prefix in ("", "[rank0]:"):
        (found,) = tracebacks(prefixed(prefix, BOXED))
        assert (found.type, found.message, found.user_frame) == ("ValueError", "x", deep)
        assert found.rank == (0 if prefix else None)
    (found,) = tracebacks(
        [
            *lines(BOXED),
            b"",
            b"The above exception was the direct cause of the following exception:",
            b"",
            *lines(BOXED.replace("ValueError: x", "OSError: y")),
        ]
    )
    assert (found.first_type, found.type) == ("ValueError", "OSError")


NOTEBOOK = """\
---------------------------------------------------------------------------
DistStoreError                            Traceback (most recent call last)
Cell In[17], line 2
      1 # look
----> 2 dataset = Dataset(local=folder)

File /opt/env/lib/python3.11/site-packages/streaming/dataset.py:431, in Dataset.__init__(self, streams)
    430 # ValueError: no
--> 431 init()

DistStoreError: Timed out after 601 seconds
"""
OLD_NOTEBOOK = """\
ValueError                                Traceback (most recent call last)
<ipython-input-3-0a1b> in <module>
----> 1 f()

~/code/data.py in load(path)
     10     x
---> 11     raise ValueError("no")

ValueError: no
"""


def test_notebooks():
    (found,) = tracebacks(lines(NOTEBOOK))
    assert (found.type, found.user_frame) == ("DistStoreError", "Cell In[17]:2")
    assert found.message == "Timed out after 601 seconds"
    (found,) = tracebacks(lines(OLD_NOTEBOOK))
    assert (found.type, found.user_frame) == ("ValueError", "~/code/data.py:11 load")


GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/home/user/train.py", line 20, in <module>
  |     run()
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/user/data.py", line 3, in load
    |     open(path)
    | FileNotFoundError: [Errno 2] No such file or directory: 'a'
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/home/user/data.py", line 5, in load
    |     raise ValueError("b")
    | ValueError: b
    +------------------------------------
"""


def test_exception_groups():
    found = {one.type: one.user_frame for one in tracebacks(lines(GROUP))}
    assert found == {
        "FileNotFoundError": "/home/user/data.py:3 load",
        "ValueError": "/home/user/data.py:5 load",
    }


def test_an_exception_group_whose_exceptions_are_cut_off():
    head = GROUP.partition("  +-+")[0]
    assert [one.type for one in tracebacks(lines(head))] == ["ExceptionGroup"]


def test_a_syntax_error_has_no_title():
    text = "  File \"train.py\", line 3\n    foo(\n       ^\nSyntaxError: '(' was never closed\n"
    (found,) = tracebacks(lines(text))
    assert (found.type, found.user_frame) == ("SyntaxError", "train.py:3")
    assert tracebacks(lines(text.replace("SyntaxError", "ValueError"))) == ()


def test_one_whose_beginning_is_cut_off():
    (found,) = tracebacks(lines(PLAIN)[4:])
    assert (found.type, found.user_frame, found.first_line) == (
        "RuntimeError",
        "/home/user/train.py:9 step",
        0,
    )
    stack = [*lines(PLAIN)[2:4], *(b"step %d" % step for step in range(9)), b"ValueError: told by others"]
    assert tracebacks(stack) == ()


def test_one_line_with_escaped_line_ends():
    text = PLAIN.replace('"', '\\"').replace("\n", "\\n")
    line = f'[rank3]: {{"message": "{text}", "timestamp": "1795211141"}}'
    (found,) = tracebacks([b"x", line.encode()])
    assert (found.type, found.rank, found.user_frame) == ("RuntimeError", 3, "/home/user/train.py:9 step")
    assert (found.first_line, found.last_line) == (1, 1)


def test_messages_of_several_lines():
    text = PLAIN.replace("  of size 4\n", "")
    hook = [
        *prefixed("[rank0]: ", text.replace("step 2 loss 0.4", "Last error:\ndevice or resource busy")),
        b"[rank0]:[W1120 21:45:36.1 a.cpp:7] x",
    ]
    assert tracebacks(hook)[0].message == "shape '[3]' is invalid\nLast error:\ndevice or resource busy"
    asked = text.replace(
        "shape '[3]' is invalid\nstep 2 loss 0.4", "not close enough:\nmean 3\nmax 4\n\nstep 2"
    )
    assert tracebacks(lines(asked))[0].message == "not close enough:\nmean 3\nmax 4"
    below = text.replace("shape '[3]' is invalid", "\n\nshapes differ")
    assert tracebacks(lines(below))[0].message.startswith("shapes differ")


def test_windows_and_framework_frames():
    text = PLAIN.replace("/home/user/train.py", "C:\\work\\train.py")
    assert tracebacks(lines(text))[0].user_frame == "C:\\work\\train.py:9 step"
    deeper = '  File "/src/pytorch/torch/nn/functional.py", line 7, in f\n    g()\n  File "/tmp/torchinductor_u/4a/c4.py", line 1, in call\n    h()\nRuntimeError'
    assert (
        tracebacks(lines(PLAIN.replace("RuntimeError", deeper)))[0].user_frame == "/home/user/train.py:9 step"
    )


def test_where_a_traceback_began():
    assert [one.outermost for one in tracebacks(lines(PLAIN))] == ["/home/user/train.py:20 <module>"]
    assert [one.outermost for one in tracebacks(lines(CHAINED))] == ["/home/user/train.py:8 <module>"]
    below = PLAIN.replace("<module>", "worker")
    assert [one.outermost for one in tracebacks(lines(below))] == ["/home/user/train.py:20 worker"]


def test_where_the_type_stands():
    (found,) = tracebacks(lines(PLAIN))
    assert lines(PLAIN)[found.error_line].startswith(b"RuntimeError")


@pytest.mark.parametrize("at", ["Traceback (most", '  File "/home/user/train.py", line 9', "RuntimeError"])
@pytest.mark.parametrize("writer", ["", "[rank3]: "])
def test_a_progress_bar_on_the_same_line(at, writer):
    bar = "\r 40%|####      | 40/99 [00:40<00:59,  1.01it/s]\r 41%|####1     | 41/99 [00:41<00:58, 2.0s/it, loss=2.1]"
    alone = "\n".join(line for line in PLAIN.splitlines() if not line.startswith("step"))
    told = "\n".join(prefixed_text(writer, alone)).replace(writer + at, bar + writer + at)
    (found,) = tracebacks(told.encode().split(b"\n"))
    (plain,) = tracebacks(lines(alone))
    assert (found.type, found.message, found.user_frame) == (plain.type, plain.message, plain.user_frame)
    assert found.rank == (3 if writer else None)


STYLES = (TABLE, REMOTE, ACTOR, BOXED, NOTEBOOK, OLD_NOTEBOOK, GROUP)
PIECES = [
    *(line for text in STYLES for line in lines(text)),
    *lines(PLAIN),
    *lines(CHAINED),
    *prefixed("[rank1]: ", CHAINED),
    b"[rank",
    b"\xff\xfe",
    b"1: ",
    b"",
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=60)), max_size=40))
def test_never_raises(some):
    for found in tracebacks(some):
        assert 0 <= found.first_line <= found.last_line < len(some)
        assert found.type


def test_the_shims_wrapper_of_a_framework_is_no_users_code():
    assert is_installed("/srv/agent/holdfast/shim/holdfast_shim_join.py")
    assert not is_installed("/srv/holdfast/train.py")
