#!/bin/sh
# Compiles the programs into a folder, this one by default. Needs clang, llvm-strip, and the headers of libbpf-dev.
set -eu
cd "$(dirname "$0")"
out=${1:-.}
for source in *.bpf.c; do
    object=$out/${source%.c}.o
    clang -target bpfel -mcpu=v3 -O2 -g -Wall -Werror -fdebug-compilation-dir=. -I"/usr/include/$(uname -m)-linux-gnu" -c "$source" -o "$object"
    llvm-strip -g "$object"
done
