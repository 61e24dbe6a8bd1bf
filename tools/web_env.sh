#!/usr/bin/env bash
# What the browser tests need besides Debian's packages: playwright-core drives Debian's Chromium, axe-core checks
# accessibility. Both by name and version from npm, into build/web-env; nothing else is fetched. Fast when there.
# The versions work with Node 18 (Debian 12) and later.
# Without npm, or without a network, it says so and the tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(playwright-core@1.52.0 axe-core@4.14.1)
folder=build/web-env

if [[ -f $folder/done && $(cat "$folder/done") == "${packages[*]}" ]]; then
    exit 0
fi
if ! command -v npm >/dev/null; then
    echo "web_env: no npm; the browser tests are skipped" >&2
    exit 0
fi
mkdir -p "$folder"
[[ -f $folder/package.json ]] || echo '{"private": true}' >"$folder/package.json"
if npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --no-save --loglevel=error "${packages[@]}"; then
    echo "${packages[*]}" >"$folder/done"
else
    echo "web_env: npm could not install ${packages[*]}; the browser tests are skipped" >&2
fi
