#!/usr/bin/env bash
# What Plimsoll says about bundled inputs: `make demo`. Each command is shown as one would type it.
set -euo pipefail
cd "$(dirname "$0")/.."
snapshots=tests/data/snapshots

show() { # run a command and show it first
    printf '\n\033[1m$ %s\033[0m\n' "$*"
    "$@"
}

show build/plimsoll --version

if build/plimsoll help --format json | grep -q '"name": "explain"'; then
    echo
    echo "1. A message on the screen: which way to turn which knob?"
    show build/plimsoll explain tests/data/oom/pytorch-fragmented.txt
fi

echo
echo "2. A snapshot taken at the failure: an 8-billion-parameter model in Hugging Face generate, on a card of 24 GiB."
show build/plimsoll diagnose "$snapshots/simulated/hf-llama8b-oom-24g.pickle" --device-memory 24GiB --html build/report.html
echo "The same as an interactive report: open build/report.html in a browser."

echo
echo "3. A snapshot from a user's Windows machine that looks fragmented: 13 GiB reserved, 1.3 GiB live. Is it?"
show build/plimsoll diagnose "$snapshots/lm-windows-highwater-t211.pickle"
