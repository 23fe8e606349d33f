#!/usr/bin/env bash
# Lays out the CUDA toolkit of tools/cuda-requirements.txt (Python wheels, pinned,
# hashes checked) in FOLDER: bin, include, lib, nvvm. About 530 MB are downloaded, and
# 270 MB stay. tools/setup.sh calls it on a machine that has no toolkit.
# Usage: tools/cuda_toolkit.sh FOLDER
set -euo pipefail
folder=${1:?usage: tools/cuda_toolkit.sh FOLDER}
cd "$(dirname "${BASH_SOURCE[0]}")"

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
/usr/bin/python3 -m pip download --quiet --disable-pip-version-check \
  --no-cache-dir --no-deps --only-binary=:all: --require-hashes \
  --requirement cuda-requirements.txt --dest "$work/wheels"

/usr/bin/python3 - "$work" <<'PYTHON'
"""Unpacks nvidia/cu13 of each wheel; of cublas the headers alone."""
import glob
import os
import sys
import zipfile

os.chdir(sys.argv[1])
for path in glob.glob("wheels/*.whl"):
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            library = "cublas" in path and "/lib/" in name
            if name.startswith("nvidia/cu13/") and not library:
                wheel.extract(name)
    os.remove(path)
PYTHON
chmod +x "$work"/nvidia/cu13/bin/* "$work"/nvidia/cu13/nvvm/bin/*

# In one step, so that a folder of this name is always a whole toolkit.
mv -T "$work/nvidia/cu13" "$folder"
