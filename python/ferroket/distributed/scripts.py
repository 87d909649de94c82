"""The user's script, before it runs."""

from pathlib import Path


def unreadable(script: str) -> str | None:
    """Why a script can't be read, if so, for a message before anything is started."""
    try:
        if not Path(script).is_dir():
            Path(script).open("rb").close()
    except OSError as error:
        return f"can't open file {str(Path(script).absolute())!r}: {error.strerror}"
    return None
