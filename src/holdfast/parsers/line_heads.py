"""Who wrote a line, by what stands at its head and by the name of its file. Pure."""

from holdfast.model.sightings import Writer


def writer_of(line: bytes, source_name_writer: Writer) -> Writer:
    """Who wrote this line. `source_name_writer`: what its file's name tells."""
    return source_name_writer


def writer_of_name(name: str) -> Writer:
    """Who writes a log, by its name."""
    return Writer()
