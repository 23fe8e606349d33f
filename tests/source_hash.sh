#!/bin/bash
# One hash of the code that a GPU result is about: kernels/, plans/ and lib/.
# Runs at the root of the sources.
set -euo pipefail
find -L kernels plans lib -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' \
  -o -name '*.cuh' -o -name '*.inc' \) -print0 |
  LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1
