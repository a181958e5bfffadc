import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Two flows on a wire, half a second of simulation's work at most.
WIRE = """
name = "wire"
duration = "3 s"
[measure]
interval = "500 ms"
[node.a]
[node.b]
[link.wire]
from = "a"
to = "b"
rate = "10 Mbps"
delay = "5 ms"
[flow.f]
from = "a"
to = "b"
law = "cubic"
[flow.g]
from = "a"
to = "b"
law = "newreno"
start = { random = "1 s" }
[variant.short]
link.wire.limit = "10 packets"
[variant.long]
link.wire.limit = "100 packets"
"""


@pytest.fixture(scope="session")
def command():
    """Runs the command that was built from the same tree."""
    binary = ROOT / "target/debug/tollway"
    if not binary.exists():
        pytest.fail(f"{binary.relative_to(ROOT)} isn't there: `make tested` builds it")

    def run(*words):
        ran = subprocess.run([binary, *map(str, words)], cwd=ROOT, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run
