#!/usr/bin/env bash
# wheel.sh [PROFILE]: makes the wheel and the source package of the Python package, in target/dist. Says loudly where it can't.
set -euo pipefail
cd "$(dirname "$0")/.."

place=target/python
[ -x "$place/bin/pip" ] || python3 -m venv "$place" || { echo "SKIPPED, the wheel: no environment can be made (Debian: apt install python3-venv)" >&2; exit 0; }
"$place/bin/pip" --quiet --disable-pip-version-check install 'maturin>=1.9,<2' ||
    { echo "SKIPPED, the wheel: maturin can't be had" >&2; exit 0; }
rm -f target/dist/*.whl
env -u PYO3_NO_PYTHON "$place/bin/maturin" build --quiet --profile "${1:-release}" --strip --locked --manifest-path python/Cargo.toml --interpreter "$place/bin/python" --out target/dist
env -u PYO3_NO_PYTHON "$place/bin/maturin" sdist --manifest-path python/Cargo.toml --out target/dist
