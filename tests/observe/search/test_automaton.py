"""Patterns loosened for bytes, and the two engines, which must say the same."""

import hashlib
import re
import stat
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.observe.search.automaton import (
    CACHE_FILES_MAX,
    DIGEST_BYTES,
    MAGIC,
    FastEngine,
    PlainEngine,
    engine,
)
from holdfast.observe.search.byte_patterns import TooLoose, loosened
from holdfast.parsers.signature_files import SignatureError
from known import PACKAGE
from observe.knowing import signature

FORMS = [
    (r"out of memory", b"out\\ of\\ memory"),
    (r"^(?:\S+ )*?(?P<type>[\w.]*Error): (?P<message>.+)$", rb"Error:\ [^\n]"),
    (
        r"(?<!not )Xid \((?P<bdf>[^)]{1,40})\): (?P<xid>\d+)",
        rb"Xid\ \([\x00-\x09\x0b-\x28\x2a-\x7f\x80-\xff]+\):\ [\x30-\x39]",
    ),
    (r"(?i)timed? out", rb"(?i:time(?:d)?\ out)"),
    (r"a(?i:bc)d", rb"a(?i:bc)d"),
    (r"rm: .{0,160}: Permission denied|\S+ killed by", rb"(?::\ Permission\ denied|\ killed\ by)"),
    (r"显存不?足", rb"(?:\xe6\x98\xbe)(?:\xe5\xad\x98)(?:(?:\xe4\xb8\x8d))?(?:\xe8\xb6\xb3)"),
    (r"(?:Rank (?P<rank>\d+)\] )?(?:^|[^a-z])lost: nan", rb"lost:\ nan"),
    (r"\w+ [0-9a-f]+: (?:[Rr]efused|Unable) to", rb":\ (?:[\x52\x72]efused|Unable)\ to"),
    (r"(?=.*rank)(?=.*lost)", rb"[^\n]*rank"),
    (r"x{2,3}y[ab]{20}z", rb"(?:x){2,3}y[\x61-\x62]{16,}z"),
    (r"(?P<a>\w)=(?P=a);", rb"[\x30-\x39\x41-\x5a\x5f\x61-\x7a]=[^\n]*;"),
]


@pytest.mark.parametrize(("pattern", "loose"), FORMS, ids=[pattern for pattern, _ in FORMS])
def test_a_pattern_is_loosened(pattern, loose):
    assert loosened(pattern).expression == loose


@pytest.mark.parametrize("pattern", ["", "a*", "(?=x*)", "a|b*", r"\b", "(?!no).*"])
def test_a_pattern_that_the_empty_line_matches_is_refused(pattern):
    with pytest.raises(TooLoose):
        loosened(pattern)
    with pytest.raises(SignatureError, match="too-much"):
        engine([signature("too-much", pattern)], None)
    with pytest.raises(SignatureError, match="too-much"):
        engine([signature("too-much", pattern)], None, is_small=True)


@pytest.mark.parametrize("pattern", ["(", "(?<=a*)b", "(?P<a>x)(?P<a>y)"])
@pytest.mark.parametrize("is_small", [True, False])
def test_a_pattern_that_is_none_is_refused(pattern, is_small):
    with pytest.raises(SignatureError, match="broken"):
        engine([signature("fine", "x"), signature("broken", pattern)], None, is_small=is_small)


@pytest.mark.parametrize(
    ("pattern", "any_of"),
    [
        (r"Killed\s+process (?P<pid>\d+)", (b"process ",)),
        (r"(?:CUDA|HIP) error|Segfault\b", (b" error", b"Segfault")),
        (r"(?i)OUT of Memory", (b"out of memory",)),
        (r"(?:a\d|b*x)y?", (b"a", b"x")),
        (r"(?i:aBc)\d", (b"abc",)),
        (r"(?i:lost)|\b(?:Gone|[❌✗])", (b"gone", b"lost", "✗".encode(), "❌".encode())),
        (r"(?i)y(?-i:Es)", (b"es",)),
        (r"loss (?:nan|inf)", (b"inf", b"nan")),
        (r"[xy]\d", ()),
        (r"(?:lost ){2}", (b"lost ",)),
    ],
)
def test_the_words_that_a_match_must_hold(pattern, any_of):
    assert loosened(pattern).any_of == any_of


# Small patterns of everything a signature may use, and lines made of their letters and some strangers.
ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "é",
        "日本",
        ".",
        r"\d",
        r"\w",
        r"\s",
        r"\S",
        r"\W",
        "[ab]",
        "[^a]",
        "[^é]",
        "[a-cé]",
        r"\.",
        "B",
    ]
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "{2}", "{1,3}", "{0,30}", "{20}", "++"])
PIECES = st.builds("{}{}".format, ATOMS.map(lambda atom: f"(?:{atom})"), REPEATS)
PARTS = st.one_of(
    PIECES,
    st.builds("(?P<g>{})".format, PIECES),
    st.builds("(?:{}|{})".format, PIECES, PIECES),
    st.builds("(?i:{})".format, PIECES),
    st.builds("(?={})".format, PIECES),
    st.builds("(?<!{})".format, st.sampled_from(["a", "b", "é"])),
    st.sampled_from(["^", "$", r"\b", r"\B", "error"]),
)


def valid(pattern: str) -> bool:
    try:
        re.compile(pattern, re.ASCII)
        loosened(pattern)
    except (re.error, TooLoose):
        return False
    return True


PATTERNS = (
    st.builds(
        lambda flag, parts: flag + "".join(parts),
        st.sampled_from(["", "(?i)"]),
        st.lists(PARTS, min_size=1, max_size=5),
    )
    .filter(lambda pattern: pattern.count("(?P<g>") < 2)
    .filter(valid)
)
LINES = st.lists(
    st.text(st.sampled_from("abcAB éÉ日本. 0\t\x00-errorx"), max_size=30).map(str.encode)
    | st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")),
    max_size=12,
)


def lines_found(candidates, text, pattern):
    """The numbers of the lines on which a candidate is confirmed."""
    found = set()
    for _, end in candidates:
        number = text.count(b"\n", 0, end)
        if re.search(pattern, text.split(b"\n")[number].decode("utf-8", "replace"), re.ASCII):
            found.add(number)
    return found


@settings(max_examples=120, deadline=None)
@given(PATTERNS, LINES)
def test_both_engines_find_every_line_that_the_pattern_matches(pattern, lines):
    text = b"".join(line + b"\n" for line in lines)
    true = {
        number
        for number, line in enumerate(lines)
        if re.search(pattern, line.decode("utf-8", "replace"), re.ASCII)
    }
    one = [signature("one", pattern)]
    assert lines_found(engine(one, None, is_small=True).candidates(text, len(text)), text, pattern) == true
    try:
        fast = engine(one, None)
    except SignatureError as error:
        assert "can never match" in str(error)
        assert not true
    else:
        assert lines_found(fast.candidates(text, len(text)), text, pattern) == true


@pytest.fixture(scope="module")
def known():
    return PACKAGE


@pytest.fixture(scope="module")
def engines(known, tmp_path_factory, cache_home):
    small = engine(known, tmp_path_factory.mktemp("cache"), is_small=True)
    fast = engine(known, cache_home / "holdfast")
    assert isinstance(small, PlainEngine) and isinstance(fast, FastEngine)
    return small, fast


def test_both_engines_find_the_proofs_of_the_package(known, engines):
    proofs = [(number, line) for number, one in enumerate(known) for line in one.matches]
    lines = [line.replace("\r", "\n").partition("\n")[0].encode() for _, line in proofs]
    text = b"\n".join(lines)
    ends = [match.start() for match in re.finditer(b"\n", text)]
    for searching in engines:
        found = {(number, bisect_left(ends, end)) for number, end in searching.candidates(text, len(text))}
        missing = [known[number].id for at, (number, line) in enumerate(proofs) if (number, at) not in found]
        assert not missing


NOISE = st.text(st.sampled_from("abc 0123456789:./[]()=-_,'é\t"), max_size=40)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_both_engines_agree_on_what_the_package_knows(known, engines, data):
    proofs = [line for one in known for line in (*one.matches, *one.misses)]
    drawn = st.lists(
        st.builds(lambda a, line, b: a + line + b, NOISE, st.sampled_from(proofs), NOISE) | NOISE, max_size=30
    )
    lines = [line.encode() for line in data.draw(drawn)]
    text = b"\n".join(lines).replace(b"\r", b"\n")
    plain, fast = (searching.candidates(text, len(text)) for searching in engines)

    def confirmed(candidates):
        return {
            (number, text.count(b"\n", 0, end))
            for number, end in candidates
            if re.search(known[number].pattern, line_at(text, end).decode("utf-8", "replace"), re.ASCII)
        }

    assert confirmed(plain) == confirmed(fast)


def line_at(text, end):
    start = text.rfind(b"\n", 0, end) + 1
    stop = text.find(b"\n", end)
    return text[start : stop if stop >= 0 else None]


# Lines of which a healthy log has millions. Each report of the engine costs as much as reading twenty lines.
ORDINARY = """\
2026-03-01 09:00:00,123 INFO train.py:214 step 1200/90000 | loss: 2.3456 | lr: 3.0e-04 | grad_norm: 0.52 | tok/s: 9123.4
2026-03-01 09:00:00,123 - trainer - WARNING - shard 00012 took 3.2 s to open, retrying
[2026-03-01 09:00:00] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]
 [2026-03-01 09:00:00] iteration     100/  500000 | consumed samples:       102400 | elapsed time per iteration (ms): \
3512.4 | learning rate: 3.000E-05 | global batch size:  1024 | lm loss: 2.345678E+00 | loss scale: 65536.0 | \
grad norm: 0.512 | number of skipped iterations:   0 | number of nan iterations:   0 |
Epoch: [3][ 120/5004]  Time  0.312 ( 0.334)  Data  0.001 ( 0.012)  Loss 2.3456e+00 (2.4e+00)  Acc@1  45.31 ( 44.02)
{'loss': 2.3456, 'grad_norm': 0.52, 'learning_rate': 3e-05, 'epoch': 0.12}
 12%|#2        | 120/1000 [01:10<08:30,  1.72it/s, loss=2.35, v_num=0]
2026-03-01 09:00:00,123 INFO eval.py:51 validation at step 1200: loss 2.3456, perplexity 10.44
2026-03-01 09:00:00,123 INFO checkpoint.py:88 saved /data/run/checkpoint-1200 in 12.3 s
Training: 100%|##########| 500/500 [10:00<00:00,  0.83it/s]
Epoch 3:  24%|##4       | 120/500 [01:10<03:41,  1.72it/s, train_loss=2.350]
[rank3]: step 1200 loss 2.3456 time 0.312s
gpu-0007:4517:4617 [5] NCCL INFO Channel 02/0 : 517[5] -> 518[6] via P2P/CUMEM/read
(WorkerDict pid=1234, ip=10.0.0.3) actor/entropy_loss:0.123 - actor/pg_loss:0.01 - timing/step:12.3
Mar  1 09:00:00 gpu-0007 systemd[1]: Started Session 42 of user root.
Mar  1 09:00:00 gpu-0007 kernel: [12345.678901] eth0: renamed from veth12ab34
I0301 09:00:00.123456 4517 controller.go:123] "Reconciling" job="train" phase="Running"
{"level":"info","ts":1772355600.1,"msg":"step","step":1200,"loss":2.3456,"rank":3}
""".splitlines()


def test_ordinary_lines_are_not_reported_in_vain(known, engines):
    in_vain = []
    for line in ORDINARY:
        text = line.encode()
        for number, _ in engines[1].candidates(text, len(text)):
            if not re.search(known[number].pattern, line, re.ASCII):
                in_vain.append((known[number].id, line[:60]))
    assert not in_vain, f"these patterns need a rarer word, or an earlier one: {in_vain}"


# The cache

ONE = [signature("one", "out of memory")]


def kept(folder):
    return sorted(folder.iterdir())


def test_what_was_compiled_is_kept_and_used(tmp_path):
    assert isinstance(engine(ONE, tmp_path / "new" / "folder"), FastEngine)
    (place,) = kept(tmp_path / "new" / "folder")
    before = place.stat().st_mtime_ns
    # A few logs are not worth compiling; what is compiled is used for them too.
    assert isinstance(engine(ONE, tmp_path / "new" / "folder", is_small=True), FastEngine)
    assert kept(tmp_path / "new" / "folder") == [place]
    assert place.stat().st_mtime_ns == before
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_few_logs_are_searched_without_compiling(tmp_path):
    assert isinstance(engine(ONE, tmp_path, is_small=True), PlainEngine)
    (place,) = kept(tmp_path)
    assert place.suffix == ".loose"
    assert engine(ONE, tmp_path, is_small=True).candidates(b"out of memory\n", 14) == [(0, 13)]


def test_another_signature_is_another_database(tmp_path):
    engine(ONE, tmp_path)
    engine([signature("one", "out of luck")], tmp_path)
    assert len(kept(tmp_path)) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: b"something else",
    ],
    ids=["half", "empty", "one bit", "another file"],
)
@pytest.mark.parametrize("is_small", [True, False])
def test_a_damaged_cache_is_made_anew(tmp_path, damage, is_small):
    engine(ONE, tmp_path, is_small=is_small)
    (place,) = kept(tmp_path)
    whole = place.read_bytes()
    place.write_bytes(damage(whole))
    assert engine(ONE, tmp_path, is_small=is_small).candidates(b"out of memory\n", 14) == [(0, 13)]
    assert len(place.read_bytes()) == len(whole)


def test_what_others_may_write_is_not_loaded(tmp_path):
    engine(ONE, tmp_path)
    (place,) = kept(tmp_path)
    place.chmod(0o666)
    engine(ONE, tmp_path)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600  # made anew


def test_a_database_of_another_version_is_made_anew(tmp_path):
    engine(ONE, tmp_path)
    (place,) = kept(tmp_path)
    database = bytearray(place.read_bytes()[len(MAGIC) + DIGEST_BYTES :])
    database[4] ^= 1  # the version stands behind the magic; the checksum is right
    place.write_bytes(MAGIC + hashlib.blake2b(database, digest_size=DIGEST_BYTES).digest() + database)
    other = place.read_bytes()
    assert engine(ONE, tmp_path).candidates(b"out of memory\n", 14) == [(0, 13)]
    assert place.read_bytes() != other


@pytest.mark.parametrize("is_small", [True, False])
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, is_small):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing/here")):
        assert engine(ONE, place, is_small=is_small).candidates(b"out of memory\n", 14) == [(0, 13)]


def test_old_databases_go(tmp_path):
    for number in range(CACHE_FILES_MAX + 3):
        engine([signature("one", f"number {number}")], tmp_path)
    assert len(kept(tmp_path)) == CACHE_FILES_MAX


def test_without_signatures_nothing_is_found(tmp_path):
    assert engine([], tmp_path).candidates(b"out of memory\n", 14) == []


def test_threads_have_an_engine_each():
    first = engine(ONE, None)
    text = b"all is well\n" * 1000 + b"out of memory\n"

    def search(_):
        own = first.fork()
        return [own.candidates(text, len(text)) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        answers = [answer for some in pool.map(search, range(4)) for answer in some]
    assert answers == [[(0, len(text) - 1)]] * 80


def test_the_rest_of_a_buffer_is_not_looked_at():
    text = bytearray(b"fine\nout of memory\n")
    for is_small in (True, False):
        assert engine(ONE, None, is_small=is_small).candidates(text, 5) == []
