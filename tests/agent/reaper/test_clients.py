"""What a process has asked of the reaper counts, also if it closes its connection at once."""

import os
import select
import socket

import pytest

from holdfast.agent.reaper.clients import Clients
from holdfast.agent.reaper.facts import Facts


class Served:
    """One client of a reaper, and the orders that reach the reaper."""

    def __init__(self, folder):
        self.folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self.facts = Facts(self.folder_fd)
        self.poll = select.poll()
        self.orders = []
        self.ranks = []
        self.clients = Clients(self.poll, self.facts, self.obey, self.joined)
        self.facts.tell = self.clients.tell
        self.channel, theirs = socket.socketpair()
        self.clients.add(theirs, pid=7)

    def obey(self, order):
        self.orders.append(order["do"])

    def joined(self, pid, said):
        self.ranks.append((pid, said["rank"]))
        return said["rank"]

    def serve(self):
        for fd, _ in self.poll.poll(0):
            self.clients.ready(fd)

    def close(self):
        self.channel.close()
        for fd, _ in self.poll.poll(0):  # of a client that is gone, the end of its stream
            self.clients.ready(fd)
        os.close(self.folder_fd)


@pytest.fixture
def served(tmp_path):
    one = Served(tmp_path)
    one.channel.send(b'{"do": "follow", "from": 0}\n')
    one.serve()
    yield one
    one.close()


def test_an_order_before_the_end_counts_though_a_message_can_no_longer_be_sent(served):
    served.channel.send(b'{"do": "detach"}\n')
    served.channel.close()
    served.facts.add("rank-found", rank=0)
    served.facts.add("rank-found", rank=1)
    served.serve()
    assert served.orders == ["detach"]
    served.serve()
    assert len(served.clients) == 0


def test_an_order_counts_though_messages_before_it_were_not_read(served):
    served.facts.add("rank-found", rank=0)
    served.channel.send(b'{"do": "detach"}\n')
    served.channel.close()
    served.facts.add("rank-found", rank=1)
    served.serve()
    served.serve()
    assert served.orders == ["detach"] and len(served.clients) == 0


def test_a_rank_that_joins_and_ends_at_once_is_one_and_its_next_order_counts(served):
    served.channel.send(b'{"do": "join", "rank": 3}\n{"do": "trains"}\n')
    served.channel.close()
    served.serve()
    assert served.ranks == [(7, 3)] and served.orders == ["trains"]


def test_orders_that_were_sent_count_before_poll_has_reported_them(served):
    served.channel.send(b'{"do": "detach"}\n')
    served.clients.serve_all()
    assert served.orders == ["detach"] and len(served.clients) == 1
