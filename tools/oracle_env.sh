#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Make the Python environment that the oracle and simulated-GPU tests run in.
#
# It holds the unmodified PyTorch CUDA wheel and its pure-Python dependencies, and none of the
# NVIDIA packages: the simulated device answers for all of them. Idempotent: when the marker of a
# finished install of the same versions is there, it only prints the path of the interpreter.
#
#   tools/oracle_env.sh             torch
#   tools/oracle_env.sh --hf        the same plus transformers (Hugging Face tests)
#   tools/oracle_env.sh --cuda12    an older wheel built for CUDA 12
#
# Folders: .venv-oracle and .venv-cuda12 in the repository, or $PLIMSOLL_ORACLE_VENV and
# $PLIMSOLL_CUDA12_VENV. $PLIMSOLL_PYTHON names the interpreter to use.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
python=${PLIMSOLL_PYTHON:-python3}
torch_version=2.14.1
cuda12_version=2.5.1
transformers_version=5.20.0

log() { echo "oracle_env: $*" >&2; }

# install VENV PACKAGE... - pip without cache noise, in that environment
install() {
    venv=$1
    shift
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" >&2
}

# begin VENV MARK - true when there is something to do; makes the empty environment
begin() {
    [ "$(cat "$1/.plimsoll-ready" 2>/dev/null)" = "$2" ] && return 1
    log "installing $2 into $1"
    rm -f "$1/.plimsoll-ready"
    [ -x "$1/bin/python" ] || "$python" -m venv "$1"
}

finish() { printf '%s' "$2" >"$1/.plimsoll-ready"; }

# What torch imports, without what it only needs on a real GPU.
torch_pure="filelock typing-extensions>=4.10 sympy>=1.13.3 mpmath networkx jinja2 markupsafe fsspec numpy setuptools"

make_torch() {
    venv=${PLIMSOLL_ORACLE_VENV:-$here/.venv-oracle}
    mark="torch $torch_version"
    if begin "$venv" "$mark"; then
        install "$venv" --no-deps "torch==$torch_version"
        # shellcheck disable=SC2086 # a list of words
        install "$venv" $torch_pure
        finish "$venv" "$mark"
    fi
}

make_hf() {
    make_torch
    if [ "$(cat "$venv/.plimsoll-hf" 2>/dev/null)" != "$transformers_version" ]; then
        log "installing transformers $transformers_version into $venv"
        install "$venv" "transformers==$transformers_version"
        printf '%s' "$transformers_version" >"$venv/.plimsoll-hf"
    fi
}

make_cuda12() {
    venv=${PLIMSOLL_CUDA12_VENV:-$here/.venv-cuda12}
    mark="torch $cuda12_version"
    if begin "$venv" "$mark"; then
        install "$venv" --no-deps "torch==$cuda12_version"
        # shellcheck disable=SC2086 # a list of words
        install "$venv" $torch_pure
        finish "$venv" "$mark"
    fi
}

case ${1:-} in
"") make_torch ;;
--hf) make_hf ;;
--cuda12) make_cuda12 ;;
*)
    log "unknown option $1 (none, --hf, --cuda12)"
    exit 64
    ;;
esac
echo "$venv/bin/python"
