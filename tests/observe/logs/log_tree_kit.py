"""How tests read a tree of logs."""

from holdfast.observe.logs import tree as log_tree
from holdfast.observe.logs.streams import Unreadable

TEXT = b"step 1 loss 2.5\nCUDA out of memory\n"


def read(*paths, limits=None):
    """{name: text} and {name: why} of what is under the paths."""
    skipped = []
    texts = {}
    for file in log_tree.find(paths, skipped.append):
        for log in log_tree.opened(file, skipped.append, limits):
            texts[log.name] = all_of(log.stream, skipped, log.name)
    return texts, {one.name: one.why for one in skipped}


def all_of(stream, skipped, name):
    parts = []
    try:
        while part := stream.read(1 << 20):
            parts.append(part)
    except Unreadable as error:
        skipped.append(log_tree.Skipped(name=name, why=str(error)))
    return b"".join(parts)
