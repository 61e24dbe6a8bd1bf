#!/usr/bin/env bash
# Linters. tools/lint.sh [format|shell|spelling|python|portable|tidy|cppcheck]...   without names: all of these; `analyze`, for
# people, only when it is named.
# `tools/lint.sh fix` rewrites the C files in the project's format.
set -euo pipefail
cd "$(dirname "$0")/.."

c_files() {
    git ls-files -- '*.c' '*.h' | while read -r file; do [[ -f $file ]] && echo "$file"; done
}

lint_format() {
    c_files | xargs clang-format-16 --dry-run -Werror
}

lint_shell() {
    git ls-files -- '*.sh' .ci/run | xargs shellcheck -x
}

lint_spelling() {
    git ls-files -- '*.c' '*.h' '*.md' '*.scd' '*.py' '*.sh' '*.build' |
        xargs codespell --ignore-words tools/spelling.txt
}

lint_portable() { # the library and the program use only C11 and POSIX 2008; Linux is for src/device and runtime
    local file
    for file in src/{base,heap,format,alloc,replay,serving,diagnose,report,cli}/*.c; do
        [[ -f $file ]] || continue
        cc -std=gnu11 -fsyntax-only -D_POSIX_C_SOURCE=200809L -D_XOPEN_SOURCE=700 -D_FILE_OFFSET_BITS=64 \
            -Iinclude -Isrc -Ibuild/src -w -Werror=implicit-function-declaration "$file"
    done
}

lint_tidy() {
    local jobs
    jobs=$(nproc)
    git ls-files -- 'src/*.c' 'runtime/*.c' | xargs -P "$jobs" -n 4 clang-tidy-16 --quiet -p build
}

lint_analyze() { # the static analyser, for people: not every finding is a defect
    git ls-files -- 'src/*.c' 'runtime/*.c' |
        xargs -P "$(nproc)" -n 4 clang-tidy-16 --quiet -p build --checks='-*,clang-analyzer-*' \
            --warnings-as-errors=-*
}

lint_cppcheck() {
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
        --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches --suppress=internalAstError \
        --suppress=arrayIndexThenCheck \
        --error-exitcode=1 \
        -D__linux__ -D_GNU_SOURCE -Iinclude -Isrc -Ibuild/src -j "$(nproc)" src runtime
}

if [[ $# -eq 0 ]]; then
    set -- format shell spelling python portable tidy cppcheck
fi
for name in "$@"; do
    case $name in
    format | shell | spelling | portable | tidy | analyze | cppcheck) "lint_$name" ;;
    python) tools/python_lint.sh ;;
    fix) c_files | xargs clang-format-16 -i ;;
    *)
        echo "usage: tools/lint.sh [format|shell|spelling|python|portable|tidy|analyze|cppcheck|fix]..." >&2
        exit 64
        ;;
    esac
done
