"""A container's log as Docker keeps it: read as it was written, told by where it stands in the file."""

import json

from holdfast.observe.search import scan
from observe.knowing import signature

OOM = signature("oom", r"CUDA out of memory\. Tried to allocate (?P<bytes>[\d.]+ \wiB)")
OOM_LINE = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0\n"


def test_what_docker_wrapped_in_json(tmp_path):
    """Over several blocks; lines and offsets are those of the file."""
    inside = [b"note %d" % n for n in range(9000)] + [b'\x1b[31mKeyError: "a"\x1b[0m', OOM_LINE.rstrip()]
    wrapped = [
        b'{"log": %b, "stream": "stderr", "time": "2031-05-06T08:00:01.5Z"}'
        % json.dumps(line.decode() + "\n").encode()
        for line in (*inside[:-1], b"x" * 300, b"y" * 300, *inside[-1:])
        for _ in range(2)
    ]
    (tmp_path / "log").write_bytes(b"\n".join(wrapped) + b"\n")
    (found,) = [one for one in scan.search([tmp_path], [OOM]).matches if one.signature == "oom"]
    assert found.text == "2031-05-06T08:00:01.5Z " + OOM_LINE.decode().rstrip()
    assert (found.line, found.count) == (len(wrapped) - 1, 2)
    assert found.offset == len(b"\n".join(wrapped[:-2])) + 1
    assert found.writer.stamp_s == 1935820801.5
