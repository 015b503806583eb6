"""Formats counts with the singular or plural of an English noun. Pure."""


def counted(count: int, one: str, many: str = "") -> str:
    """Returns a count with its noun: "1 GPU", "8 GPUs". `many`: the plural, if it is irregular."""
    return f"{count} {one if count == 1 else many or one + 's'}"
