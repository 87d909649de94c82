"""What all tests share."""

import sys
from pathlib import Path

# Helpers of the tests are modules in this folder.
sys.path.insert(0, str(Path(__file__).parent))
