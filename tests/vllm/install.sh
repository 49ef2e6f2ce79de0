#!/usr/bin/env bash
# vLLM for the CPU into the virtual environment $1, and DAOM beside it, as a user would put it there.
# The list of packages and what `pip check` says, before and after, stay in $1: DAOM must move none
# and break nothing. (It complains before, too: of what is left out below.)
set -euo pipefail
venv=$1
here=$(cd "$(dirname "$0")" && pwd)
pip=("$venv/bin/pip" --quiet --disable-pip-version-check)

if [ ! -e "$venv/.vllm" ]; then
  # The CPU build of torch: from wherever pip is told to look, else from PyTorch's own index.
  "${pip[@]}" install torch==2.13.0
  # torchvision, torchaudio, torchcodec and triton are left out: a tiny text model needs none.
  "${pip[@]}" install --no-deps --require-hashes -r "$here/requirements.txt"
  "$venv/bin/python" -m compileall -q -j 0 "$venv/lib" >/dev/null || true
  touch "$venv/.vllm"
fi
"${pip[@]}" uninstall --yes daom >/dev/null 2>&1 || true
[ -e "$venv/before.txt" ] || "$venv/bin/pip" list --format=freeze >"$venv/before.txt" 2>/dev/null
"${pip[@]}" check >"$venv/check-before.txt" 2>/dev/null || true
"${pip[@]}" install "$here/../.."
"${pip[@]}" check >"$venv/check-after.txt" 2>/dev/null || true
"$venv/bin/pip" list --format=freeze >"$venv/after.txt" 2>/dev/null
