"""Runs one authenticated connection from its handshake to its end: frames over a socket. Both sides of a link use
it.
"""

from collections.abc import Iterator

from holdfast.link.frames import BadFrame, Frame, Opener, Sealer
from holdfast.link.handshake import Handshake, Refusal
from holdfast.link.wire import Wire, WireClosed

HANDSHAKE_READ_BYTES = 1 << 12


class ChannelEnded(Exception):
    """Raised when the connection must be closed; the message gives the reason.

    `refused`: True if one side rejects the other, as for a wrong secret.
    """

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class Channel:
    """One connection: a handshake, then authenticated frames in both directions.

    `address`: of the other side, "host:port". `since_s`: when the connection was begun. read, send and flush
    raise ChannelEnded.
    """

    def __init__(self, wire: Wire, handshake: Handshake, address: str, since_s: float) -> None:
        self.wire = wire
        self.address = address
        self.since_s = since_s
        self._handshake = handshake
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._has_frames = False  # the opener may hold frames that were not taken yet

    @property
    def is_proven(self) -> bool:
        """Returns whether the other side has proved that it has the job's secret."""
        return self._opener is not None

    @property
    def has_more(self) -> bool:
        """Returns whether received data is buffered here, for which the file descriptor does not become readable
        again.
        """
        return self._has_frames or self.wire.has_more

    def begin(self) -> None:
        self._write(self._handshake.begin())

    def read(self, bytes_max: int) -> Iterator[Frame]:
        """Yields the frames that have arrived, up to about `bytes_max` bytes.

        Frames that the caller does not consume are yielded by the next call.
        """
        if self._opener is None:
            data = self._shaken()
            if self._opener is None:
                return
        else:
            data = b"" if self._has_frames else self._read(bytes_max)
        self._has_frames = True
        try:
            yield from self._opener.feed(data)
            self._has_frames = False
        except BadFrame as error:
            raise ChannelEnded(str(error), refused=True) from error

    def send(self, kind: int, body: bytes) -> None:
        self.put(kind, body)
        self.flush()

    def put(self, kind: int, body: bytes) -> None:
        """Queues a frame for the next `flush`, so that one system call sends many frames."""
        assert self._sealer is not None
        self.wire.put(self._sealer.seal(kind, body))

    def flush(self) -> None:
        try:
            self.wire.flush()
        except WireClosed as error:
            raise ChannelEnded(str(error)) from error

    def _shaken(self) -> bytes:
        """Continues the handshake. Returns the data that follows its end; empty if it is not finished."""
        data = self._read(HANDSHAKE_READ_BYTES)
        if not data:
            return b""
        try:
            step = self._handshake.feed(data)
        except Refusal as refusal:
            self._write(refusal.tell)
            raise ChannelEnded(str(refusal), refused=True) from refusal
        if step.keys is not None:
            self._sealer, self._opener = Sealer(step.keys.ours), Opener(step.keys.theirs)
        self._write(step.send)
        return step.rest

    def _read(self, bytes_max: int) -> bytes:
        try:
            return self.wire.read(bytes_max)
        except WireClosed as error:
            raise ChannelEnded(str(error)) from error

    def _write(self, data: bytes) -> None:
        if not data:
            return
        try:
            self.wire.write(data)
        except WireClosed as error:
            raise ChannelEnded(str(error)) from error
