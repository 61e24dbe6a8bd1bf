#!/usr/bin/env bash
# Run every fuzz target for a while: tools/fuzz.sh [SECONDS [TARGET]...]
#
# Builds with clang and libFuzzer in build-fuzz/, starts from the committed corpus (tests/fuzz/corpus/NAME),
# keeps what it finds new in build-fuzz/corpus/NAME, and leaves inputs that crash in build-fuzz/crashes/.
#
# Without a seed this is a search: each run goes on from what earlier ones found, and tries other inputs.
# PLIMSOLL_FUZZ_SEED, a number above 0, makes it a test instead: every run, on every machine, tries the same
# inputs in the same order: as many as tests/fuzz/runs says (about ten seconds on an idle core), or as far as it comes
# in its time. What passed here with the time for all of them passes there. For that the committed inputs are
# given by name, in the order of their names (a folder lists them as it likes); finds go to a folder of their
# own, empty at the start (build-fuzz/seeded/NAME), and aren't read back; and operands of compares are no words to
# try (-use_cmp=0): addresses are among them, which differ each time.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
seed=${PLIMSOLL_FUZZ_SEED:-0}
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
mkdir -p build-fuzz/crashes build-fuzz/seeded
for target in "${targets[@]}"; do
    name=${target#fuzz_}
    options=(-seed="$seed" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0)
    [[ -f tests/fuzz/$name.dict ]] && options+=(-dict="tests/fuzz/$name.dict")
    if ((seed > 0)); then
        rm -rf "build-fuzz/seeded/$name"
        inputs=(tests/fuzz/corpus/"$name"/*)
        (IFS=, && printf '%s' "${inputs[*]}") >"build-fuzz/seeded/$name.inputs"
        runs=$(sed -n "s/^$name //p" tests/fuzz/runs)
        options+=(-runs="${runs:--1}" -reload=0 -use_cmp=0 -seed_inputs="@build-fuzz/seeded/$name.inputs")
        folders=("build-fuzz/seeded/$name")
    else
        folders=("build-fuzz/corpus/$name" "tests/fuzz/corpus/$name")
    fi
    mkdir -p "${folders[@]}"
    echo "fuzz: $target for $seconds s"
    "build-fuzz/tests/fuzz/$target" -max_total_time="$seconds" "${options[@]}" \
        -artifact_prefix=build-fuzz/crashes/ "${folders[@]}"
done
echo "fuzz: ${#targets[@]} targets, nothing found"
