#!/usr/bin/env bash
# Run every fuzz target for a while: tools/fuzz.sh [SECONDS [TARGET]...]
#
# Builds with clang and libFuzzer in build-fuzz/, starts from the committed corpus (tests/fuzz/corpus/NAME),
# keeps what it finds new in build-fuzz/corpus/NAME, and leaves inputs that crash in build-fuzz/crashes/.
# PLIMSOLL_FUZZ_SEED: a number with which each run tries the same inputs, for as far as it comes; 0: other ones each time.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true

if [[ ! -f build-fuzz/build.ninja ]]; then
    CC=clang-14 meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
        -Dbuildtype=debug -Doptimization=1
fi
mapfile -t built < <(ninja -C build-fuzz -t targets all | sed -n 's#^\(tests/fuzz/fuzz_[a-z0-9_]*\): .*LINKER.*#\1#p')
ninja -C build-fuzz "${built[@]}"
mapfile -t targets < <(cd build-fuzz/tests/fuzz && find . -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x -printf '%f\n' | sort)
if [[ $# -gt 0 ]]; then
    targets=("$@")
fi
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
mkdir -p build-fuzz/crashes
for target in "${targets[@]}"; do
    name=${target#fuzz_}
    mkdir -p "build-fuzz/corpus/$name" "tests/fuzz/corpus/$name"
    dict=()
    [[ -f tests/fuzz/$name.dict ]] && dict=(-dict="tests/fuzz/$name.dict")
    echo "fuzz: $target for $seconds s"
    "build-fuzz/tests/fuzz/$target" -max_total_time="$seconds" -seed="${PLIMSOLL_FUZZ_SEED:-0}" -timeout=60 -rss_limit_mb=2048 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix=build-fuzz/crashes/ "${dict[@]}" \
        "build-fuzz/corpus/$name" "tests/fuzz/corpus/$name"
done
echo "fuzz: ${#targets[@]} targets, nothing found"
