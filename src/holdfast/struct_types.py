"""Prepares msgspec's Struct classes for threads."""

import msgspec


def prepare() -> int:
    """Has msgspec build what it keeps of each Struct class that is imported by now. Returns their number.

    msgspec builds it at the first use of a class, and other threads see it half built: one that decodes the same class
    then reads a null pointer, and the process ends with a segmentation fault. Call it before the first thread starts.

    source: msgspec 0.22, _core.c, StructInfo_Convert
    """
    classes = [msgspec.Struct]
    for one in classes:
        classes += one.__subclasses__()
    for one in classes[1:]:
        try:
            msgspec.json.Decoder(one)
        except TypeError:
            pass  # it has a field that cannot be decoded: nothing decodes it
    return len(classes) - 1
