#!/bin/sh
# Builds the object of the XDP program: build.sh OUTPUT. Needs clang.
set -eu
cd "$(dirname "$0")"
hash=$(sha256sum bypass.c | cut -d ' ' -f 1)
"${CLANG:-clang}" -target bpfel -mcpu=v3 -O2 -Wall -Werror -fno-ident "-DSOURCE_HASH=\"$hash\"" -c bypass.c -o "$1"
