"""Judges device faults by their error codes, by other events and by the wording of messages. Pure."""
