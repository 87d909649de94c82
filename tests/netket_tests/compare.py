"""Runs NetKet's own tests as they are and with this package in NetKet's place, and says which fail with ours alone.

python tests/netket_tests/compare.py CHECKOUT [operators|enable] [FOLDER ...] [-- ARGUMENTS OF PYTEST]
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
FOLDERS = {
    "operators": ["operator", "observable", "exact", "dynamics"],
    "enable": ["driver", "optimizer", "jax", "sampler", "variational", "models", "observable", "dynamics"],
}


def main() -> int:
    arguments, options = sys.argv[1:], []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, options = arguments[:cut], arguments[cut + 1 :]
    checkout, *arguments = arguments
    modes = [arguments.pop(0)] if arguments and arguments[0] in FOLDERS else list(FOLDERS)
    sys.stdout.reconfigure(line_buffering=True)  # pytest writes there, too
    with tempfile.TemporaryDirectory() as place:
        # The checkout has a package `netket`, but the installed one is to be tested.
        shutil.copytree(Path(checkout) / "test", Path(place) / "test")
        plain: dict[str, dict[str, str]] = {}
        alone = 0
        for mode in modes:
            for folder in arguments or FOLDERS[mode]:
                if folder not in plain:
                    plain[folder] = run(Path(place), folder, options)
                ours = run(Path(place), folder, [f"--ferroket={mode}", *options])
                failing = {name: why for name, why in ours.items() if name not in plain[folder]}
                alone += len(failing)
                print(f"== {mode} {folder}: {len(plain[folder])} fail as they are, {len(failing)} with ours alone")
                for name, why in failing.items():
                    print(f"FAILED {name}: {why}")
    return 1 if alone else 0


def run(place: Path, folder: str, options: list[str]) -> dict[str, str]:
    """The tests of a folder that fail, and the first line of why."""
    report = place / "report.xml"
    report.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    # No settings but these: what pytest finds in a folder above isn't for NetKet's tests.
    (place / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "drop_in", "-q", "--tb=no", f"--junitxml={report}", *options]
    subprocess.run([*command, f"test/{folder}"], cwd=place, env={**os.environ, "PYTHONPATH": path}, check=False)
    if not report.exists():
        sys.exit(f"pytest has come to no end in {folder}: {' '.join(options)}")
    failing = {}
    for case in ElementTree.parse(report).iter("testcase"):
        for problem in (*case.findall("failure"), *case.findall("error")):
            name = f"{case.get('classname')}::{case.get('name')}"
            failing[name] = (problem.get("message") or "").split("\n")[0][:200]
    return failing


if __name__ == "__main__":
    sys.exit(main())
