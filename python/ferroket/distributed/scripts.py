"""The user's script, before it runs."""

import sys
from pathlib import Path

# Python for processes that are Ferroket's own: -P imports nothing from the current folder, which may be anybody's.
PYTHON = (sys.executable, "-P")

# By this variable python orders sets of texts. Ranks that go through one run their programs in its order.
HASH_SEED = "PYTHONHASHSEED"


def unreadable(script: str) -> str | None:
    """Why a script can't be read, if so, for a message before anything is started."""
    try:
        if not Path(script).is_dir():
            Path(script).open("rb").close()
    except OSError as error:
        return f"can't open file {str(Path(script).absolute())!r}: {error.strerror}"
    return None
