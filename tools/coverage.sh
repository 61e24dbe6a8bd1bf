#!/usr/bin/env bash
# Line coverage of src/ by the quick, cli, golden and fuzz-corpus tests: tools/coverage.sh [LEAST-PERCENT]
# With a number it fails below it. The report: build-cov/coverage.txt, and in HTML build-cov/coverage/index.html.
set -euo pipefail
cd "$(dirname "$0")/.."
least=${1:-0}
if [[ ! -f build-cov/build.ninja ]]; then
    meson setup build-cov -Db_coverage=true -Dbuildtype=debug -Doptimization=1 >/dev/null
fi
ninja -C build-cov >/dev/null
find build-cov -name '*.gcda' -delete
meson test -C build-cov --no-rebuild -t 5 --suite quick --suite cli --suite golden --suite fuzz >/dev/null
mkdir -p build-cov/coverage
gcovr --root . --object-directory build-cov --filter 'src/' --exclude-unreachable-branches \
    --html-details build-cov/coverage/index.html --txt build-cov/coverage.txt --fail-under-line "$least" build-cov
tail -4 build-cov/coverage.txt
