#!/usr/bin/env bash
# Check the Python package: types with mypy, habits with ruff, both by version from PyPI in an environment of their own
# (.venv-lint). Where they cannot be installed, it says so and checks that the files compile.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(mypy==2.4.1 ruff==0.17.6)
folder=.venv-lint

if [[ ! -f $folder/done || $(cat "$folder/done") != "${packages[*]}" ]]; then
    rm -rf "$folder"
    if python3 -m venv "$folder" && "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        "${packages[@]}"; then
        echo "${packages[*]}" >"$folder/done"
    else
        rm -rf "$folder"
        echo "python_lint: mypy and ruff could not be installed; only compiling" >&2
        exec python3 -m compileall -q -f python
    fi
fi
cd python
"../$folder/bin/mypy" --cache-dir=../build/mypy
"../$folder/bin/ruff" check --no-cache .
