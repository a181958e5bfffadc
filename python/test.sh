#!/usr/bin/env bash
# Installs the Python package as a user would, in an environment of its own, and tests it. Says loudly where it can't.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    printf '\n*** SKIPPED, all tests of the Python package: %s\n\n' "$*" >&2
    exit 0
}

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || skip "there is no Python 3.11 or later"
place=target/python
[ -x "$place/bin/pip" ] || python3 -m venv "$place" || skip "no environment can be made (Debian: apt install python3-venv)"
pip() { "$place/bin/pip" --quiet --disable-pip-version-check "$@"; }
# What it stands on may be out of reach; that it builds may not fail.
pip install 'pyarrow>=15' 'distributed>=2024.1' 'pandas>=2' 'pytest>=8' ||
    skip "the packages that they need can't be had"
./python/wheel.sh dev
pip install --no-deps --force-reinstall target/dist/tollway-*.whl
"$place/bin/python" -m pytest -rs python
