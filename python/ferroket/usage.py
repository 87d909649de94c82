"""Values of the command line that can't be used."""

import os
from pathlib import Path


class UsageError(ValueError):
    """What a user asked for can't be done; the message names the value, says what is allowed, and what to do."""


def check_writable(file: Path, option: str) -> None:
    """Checks that a file can be written, before the work is done that it is for.

    Args:
        file: The file, which may exist.
        option: The option that named it, for the message.

    Raises:
        UsageError: It is a folder, its folder doesn't exist, or it may not be written.
    """
    what = f"{option} {str(file)!r}"
    if file.is_dir():
        raise UsageError(f"{what} is a folder: name a file")
    folder = file.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"{what}: there is no folder {str(folder)!r}. Make it, or name a file elsewhere")
    if not os.access(file if file.exists() else folder, os.W_OK):
        raise UsageError(f"{what} can't be written: permission denied. Name a file elsewhere")
