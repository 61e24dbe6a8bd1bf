#!/usr/bin/env bash
# Install what is missing to build, or to run all tests. Fast when everything is there.
#
#   tools/setup.sh build    compiler, Meson, libraries (for `make build` and `make demo`)
#   tools/setup.sh check    the same and everything that the tests and linters need
#   tools/setup.sh list     print the package names, one a line
#
# Debian 12 and Ubuntu 24.04 by package name with apt-get (as root, or with sudo). Elsewhere it prints what is
# needed and goes on when the build tools are there.
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
    build-essential git meson ninja-build pkgconf python3
    libzstd-dev liblzma-dev zlib1g-dev libxxhash-dev libjansson-dev libinih-dev
    libmicrohttpd-dev libsqlite3-dev libcurl4-openssl-dev libncurses-dev
)
check_packages=(
    libcmocka-dev scdoc mandoc python3-jsonschema python3-pyte zsh fish jq
    shellcheck codespell cppcheck gcovr zstd xz-utils
)
# What is in deploy/ is tested with the programs that it is for; alerts with a real Alertmanager.
check_packages+=(haproxy nginx-light prometheus prometheus-alertmanager victoria-metrics lintian)
# The report is tested in Chromium, driven from Node.
check_packages+=(chromium fonts-dejavu-core)
if ! command -v npm >/dev/null; then
    check_packages+=(nodejs npm)
fi
# Pinned compilers for formatting, clang-tidy and fuzzing: a system that does not have them skips those checks.
optional_packages=(clang-format-16 clang-tidy-16 clang-14 libclang-rt-14-dev)
# For the Python environment of the oracle and integration tests.
venv_packages=(python3-venv)

mode=${1:-check}
case $mode in
build) wanted=("${build_packages[@]}") ;;
check) wanted=("${build_packages[@]}" "${check_packages[@]}" "${optional_packages[@]}" "${venv_packages[@]}") ;;
list)
    printf '%s\n' "${build_packages[@]}" "${check_packages[@]}" "${optional_packages[@]}" "${venv_packages[@]}"
    exit 0
    ;;
*)
    echo "usage: tools/setup.sh build|check|list" >&2
    exit 64
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    for tool in cc meson ninja pkg-config python3; do
        command -v "$tool" >/dev/null || {
            echo "setup: this is no Debian or Ubuntu; please install what these packages hold: ${wanted[*]}" >&2
            exit 69
        }
    done
    exit 0
fi

missing_of() { # names of the packages among "$@" that are not installed, one a line
    local name
    declare -A have=()
    while read -r name; do
        have[$name]=1
    done < <(dpkg-query -W -f='${binary:Package} ${db:Status-Abbrev}\n' 2>/dev/null |
        awk '$2 == "ii" { sub(/:.*/, "", $1); print $1 }')
    for name in "$@"; do
        [[ -n ${have[$name]:-} ]] || echo "$name"
    done
}

mapfile -t missing < <(missing_of "${wanted[@]}")
if [[ ${#missing[@]} -eq 0 ]]; then
    exit 0
fi

sudo=()
if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || {
        echo "setup: not root and no sudo; please install: ${missing[*]}" >&2
        exit 77
    }
    sudo=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
echo "setup: installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq
install=()
for name in "${missing[@]}"; do
    if [[ " ${optional_packages[*]} " == *" $name "* ]] && ! apt-cache show "$name" >/dev/null 2>&1; then
        echo "setup: this system has no package $name; the checks that need it are skipped" >&2
    else
        install+=("$name")
    fi
done
if [[ ${#install[@]} -gt 0 ]]; then
    "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${install[@]}" >/dev/null
fi
