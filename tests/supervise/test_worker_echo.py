"""The output of many workers on one console."""

from holdfast.supervise.worker_echo import LOOKED_AT_MAX, WorkerEcho


class Shown:
    def __init__(self, folder):
        self.lines = []
        self.notes = []
        self.echo = WorkerEcho(folder, self._show, self.notes.append)

    def _show(self, chunk, before):
        self.lines += [before + line for line in chunk.lines]


def write(folder, worker, text, attempt=1):
    place = folder / f"attempt-{attempt:03d}" / f"worker-{worker}"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "stdout").open("a") as file:
        file.write(text)


def test_each_line_says_whose_it_is(tmp_path):
    shown = Shown(tmp_path)
    shown.echo.follow(1, [0, 1], 9.0)
    for worker in (0, 1):
        write(tmp_path, worker, f"hello of {worker}\n")
    shown.echo.turn(10.0)
    assert shown.lines == [b"[worker 0] hello of 0", b"[worker 1] hello of 1"]


def test_of_one_worker_nothing_stands_before_its_lines(tmp_path):
    shown = Shown(tmp_path)
    shown.echo.follow(1, [0], 9.0)
    write(tmp_path, 0, "hello\n")
    shown.echo.turn(10.0)
    assert shown.lines == [b"hello"]


def test_what_another_process_has_shown_is_not_shown_again(tmp_path):
    write(tmp_path, 0, "old\n")
    shown = Shown(tmp_path)
    shown.echo.follow(1, [0], 9.0, from_end=True)
    shown.echo.turn(10.0)
    write(tmp_path, 0, "new\n")
    shown.echo.turn(12.0)
    assert shown.lines == [b"new"]


def test_the_end_of_an_attempt_is_shown_before_the_next(tmp_path):
    shown = Shown(tmp_path)
    shown.echo.follow(1, [0], 9.0)
    write(tmp_path, 0, "last words, and no newline")
    shown.echo.follow(2, [0], 9.0)
    write(tmp_path, 0, "again\n", attempt=2)
    shown.echo.turn(20.0)
    assert shown.lines == [b"last words, and no newline", b"again"]


def test_many_workers_are_looked_at_in_turn(tmp_path):
    shown = Shown(tmp_path)
    workers = range(2 * LOOKED_AT_MAX)
    shown.echo.follow(1, workers, 9.0)
    for worker in workers:
        write(tmp_path, worker, "x\n")
    shown.echo.turn(10.0)
    assert len(shown.lines) == LOOKED_AT_MAX
    shown.echo.turn(10.1)
    assert len(shown.lines) == 2 * LOOKED_AT_MAX


def test_one_is_looked_at_when_it_is_asked_for(tmp_path):
    shown = Shown(tmp_path)
    shown.echo.follow(1, [0, 1], 9.0)
    for worker in (0, 1):
        write(tmp_path, worker, "x\n")
    shown.echo.look_at(1, 10.0)
    shown.echo.look_at(7, 10.0)
    assert shown.lines == [b"[worker 1] x"]
