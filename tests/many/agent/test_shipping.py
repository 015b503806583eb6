"""Where a node does not see the job's folder: what it keeps is its own, and what people want of it is sent."""

from holdfast.agent.nodes.shipping import BEHIND_BYTES_MAX, BYTES_PER_S, PIECE_BYTES, Shipping
from holdfast.model.events import AttemptStopped, RankExited, StepReached
from holdfast.model.nodes.workers import Leave, Shipped


def _elsewhere(bench):
    return {"HOLDFAST_JOB_FOLDER": f"/not/here/jobs/{bench.job}", "HOLDFAST_STATE_DIR": bench.path / "own"}


def _joined_pieces(bench, node, name):
    """What was sent of a file, laid together."""
    content = b""
    for one in bench.reports[node]:
        if isinstance(one, Shipped) and one.name == name:
            assert one.offset == len(content)
            content += one.data
    return content


def test_output_comes_as_it_is_written_and_all_of_it_in_the_end(bench):
    agent = bench.agent("n0", **_elsewhere(bench))
    assert bench.joined("n0").token == ""
    bench.start("n0", 1)
    own = bench.path / "own" / "jobs" / bench.job / "attempt-001" / "worker-0" / "stdout"
    bench.told("n0", StepReached)
    bench.report("n0", Shipped, lambda one: one.name == "stdout")
    assert not (bench.folder / "attempt-001").exists()
    bench.do(0, "exit 3")
    bench.told("n0", RankExited, code=3)
    bench.stop("n0", 1)
    bench.told("n0", AttemptStopped, attempt=1)
    bench.order("n0", "leave", Leave(code=0, reason="the test is over"))
    bench.until("the agent's end", lambda: agent.process.poll() is not None)
    bench.until("its goodbye", lambda: bench.left)
    assert _joined_pieces(bench, "n0", "stdout") == own.read_bytes()
    assert b"rank-exited" in _joined_pieces(bench, "n0", "reaper.jsonl")


class Controller:
    def __init__(self):
        self.connected = True
        self.pieces = []

    def is_connected(self):
        return self.connected

    def total(self):
        return sum(len(one.data) for one in self.pieces)


def _shipping(folder, controller):
    return Shipping(folder, 1, 2, controller.pieces.append, controller.is_connected)


def test_no_more_is_sent_than_the_rate_allows_and_small_files_first(tmp_path):
    (tmp_path / "stdout").write_bytes(b"x" * (4 << 20))
    (tmp_path / "rank-0.error.json").write_bytes(b"{}")
    controller = Controller()
    shipping = _shipping(tmp_path, controller)
    for turn in range(51):
        shipping.turn(100.0 + turn / 10)
    assert controller.pieces[0].name == "rank-0.error.json"
    assert (controller.pieces[0].attempt, controller.pieces[0].worker) == (1, 2)
    assert controller.total() <= 6 * BYTES_PER_S
    assert all(len(one.data) <= PIECE_BYTES for one in controller.pieces)


def test_while_the_controller_is_away_nothing_is_sent_and_nothing_is_lost(tmp_path):
    controller = Controller()
    shipping = _shipping(tmp_path, controller)
    controller.connected = False
    with (tmp_path / "stderr").open("ab") as file:
        for turn in range(10):
            file.write(b"line %d\n" % turn)
            file.flush()
            shipping.turn(10.0 + turn)
    assert not controller.pieces
    controller.connected = True
    shipping.turn(30.0)
    assert b"".join(one.data for one in controller.pieces) == (tmp_path / "stderr").read_bytes()
    assert shipping.is_drained


def test_of_a_log_that_grows_too_fast_the_end_is_sent(tmp_path):
    with (tmp_path / "rank-0.log").open("wb") as file:
        file.truncate(BEHIND_BYTES_MAX + (8 << 20))
    controller = Controller()
    shipping = _shipping(tmp_path, controller)
    shipping.turn(10.0)
    assert controller.pieces[0].offset == 8 << 20


def test_what_only_keeps_our_works_going_is_not_sent(tmp_path):
    for name in ("samples.new", "stdout.idx", "gate", "rank-0.ready", "steps.json", "imports", "train.py"):
        (tmp_path / name).write_bytes(b"x")
    controller = Controller()
    _shipping(tmp_path, controller).turn(10.0)
    assert not controller.pieces
