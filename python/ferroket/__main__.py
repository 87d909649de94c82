"""``python -m ferroket`` is the command ``ferroket``."""

from ferroket.cli import app

if __name__ == "__main__":
    app(prog_name="ferroket")
