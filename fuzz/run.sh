#!/bin/sh
# Runs every fuzz target, or those named, for so many seconds each:
#
#   fuzz/run.sh SECONDS [TARGET...]
#
# What a run finds interesting goes to fuzz/out/TARGET, what breaks something to fuzz/artifacts/TARGET.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
[ $# -gt 0 ] && shift
case $seconds in
    '' | *[!0-9]*)
        echo "usage: fuzz/run.sh SECONDS [TARGET...]" >&2
        exit 2
        ;;
esac
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzzing needs a nightly Rust: rustup toolchain install nightly --profile minimal" >&2
    exit 2
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzzing needs cargo-fuzz: cargo install cargo-fuzz" >&2
    exit 2
fi
if [ $# -eq 0 ]; then
    set -- $(for target in fuzz/fuzz_targets/*.rs; do basename "$target" .rs; done)
fi
for target in "$@"; do
    mkdir -p "fuzz/out/$target" "fuzz/corpus/$target"
    echo "== $target, $seconds s"
    cargo +nightly fuzz run "$target" "fuzz/out/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=0
done
