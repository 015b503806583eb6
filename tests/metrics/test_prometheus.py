"""A Prometheus that is slow, empty, old, huge, or something else: one line each, and bounded waits."""

import json
import math
import threading
import time

import pytest

from holdfast.metrics.prometheus import Prometheus, PrometheusUnavailable
from metrics.servers import Played, free_port, prometheus, text, wait_for_series, with_history

JSON = "application/json"


def vector(*values):
    result = [{"metric": {"n": str(n)}, "value": [5.0, value]} for n, value in enumerate(values)]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def test_nan_and_infinities_are_numbers(started):
    server = started(Played(text(vector("1.5", "NaN", "+Inf", "-Inf", "nonsense"), kind=JSON)))
    first, nan, up, down, odd = (one.values[0][1] for one in Prometheus(server.url).now("x"))
    assert (first, up, down) == (1.5, math.inf, -math.inf)
    assert math.isnan(nan) and math.isnan(odd)


def test_the_same_question_is_asked_once(started):
    count = []

    def answer(handler):
        count.append(handler.path)
        text(vector("1"), kind=JSON)(handler)

    asked = Prometheus(started(Played(answer)).url)
    for _ in range(3):
        asked.now("x")
    asked.now("y")
    assert len(count) == 2


def test_nobody_listens():
    with pytest.raises(PrometheusUnavailable, match="cannot be reached.*refused"):
        Prometheus(f"http://127.0.0.1:{free_port()}").now("x")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("<html>Grafana</html>", 200, "is this the URL of Prometheus"),
        ("<html>not found</html>", 404, "returned 404"),
        ("", 503, "returned 503"),
        ("{}", 200, "rejected"),
        ('{"status":"error","errorType":"timeout","error":"query timed out"}', 503, "query timed out"),
        ('{"status":"success","data":{"resultType":"string","result":[5,"x"]}}', 200, "instead of series"),
        (
            '{"status":"success","data":{"resultType":"vector","result":[{"value":3}]}}',
            200,
            "an unknown format",
        ),
        ('{"status":"success","data":[]}', 200, "is this the URL of Prometheus"),
    ],
)
def test_answers_that_are_none(started, body, status, says):
    server = started(Played(text(body, status, JSON)))
    with pytest.raises(PrometheusUnavailable, match=says) as told:
        Prometheus(server.url).now("x")
    assert "\n" not in str(told.value)


def test_one_that_never_answers_and_one_that_drips(started):
    enough = threading.Event()

    def never(handler):
        enough.wait(200)

    def drips(handler):
        handler.send_response(200)
        handler.end_headers()
        while not enough.wait(0.05):
            handler.wfile.write(b" ")

    for answer in (never, drips):
        begun_s = time.monotonic()
        with pytest.raises(PrometheusUnavailable, match="cannot be reached|did not respond"):
            Prometheus(started(Played(answer)).url, timeout_s=0.5).now("x")
        assert time.monotonic() - begun_s < 100
    enough.set()


def test_ten_million_series_are_too_many(started):
    def huge(handler):
        handler.send_response(200)
        handler.end_headers()
        piece = b'{"metric":{},"value":[1,"1"]},' * 10_000
        handler.wfile.write(b'{"status":"success","data":{"resultType":"vector","result":[')
        for _ in range(1_000):
            handler.wfile.write(piece)

    with pytest.raises(PrometheusUnavailable, match="more than 4 MiB: the query is too broad"):
        Prometheus(started(Played(huge)).url, timeout_s=30.0, bytes_max=4 << 20).now("x")


def test_a_real_one(tools, started, tmp_path):
    with_history(tmp_path, '# TYPE old gauge\nold{a="b"} 1 1000000000\nold{a="b"} NaN 1000000060\n# EOF\n')
    exporter = started(Played(text("it 3\n")))
    server = started(prometheus(tmp_path, [exporter.port]))
    wait_for_series(server.url, "it")
    asked = Prometheus(server.url)
    assert [one.values[0][1] for one in asked.now("it")] == [3.0]
    assert asked.now("not_there") == []
    (one,) = asked.over("old", 1_000_000_000, 1_000_000_060, 60)
    assert one.labels["a"] == "b"
    assert one.values[0] == (1_000_000_000.0, 1.0)
    assert math.isnan(one.values[1][1])
    assert "old" in asked.names('{a="b"}', 999_999_000, 1_000_000_100)
    assert asked.rules() == {}
    with pytest.raises(PrometheusUnavailable, match="rejected /api/v1/query: .*parse error"):
        asked.now("((")
