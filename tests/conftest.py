"""What all tests share."""

import signal
import sys
from pathlib import Path

# Helpers of the tests are modules in this folder.
sys.path.insert(0, str(Path(__file__).parent))

# A shell has its background jobs ignore Ctrl-C, and so would the jobs that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
