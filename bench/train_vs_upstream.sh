#!/usr/bin/env bash
# One LoRA step of the full-size model, here and in upstream's trainer (JAX on the CPU, all threads), on
# the same rows in the same order, in turn; prints seconds a step, processor time, memory, the time to the
# first step and the ratio, as the rows of docs/benchmarks.md.
#
#   bench/train_vs_upstream.sh [CASE...]     cases: mixed one-set dense long full no-qat (default: all
#                  these) and command (two epochs of 200 rows, from start to adapter: half an hour)
#     TURNS=3      turns of the case "mixed" (the others take one); ours runs before and after upstream
#     STEPS=2      counted steps of a turn; the one before them (compiling, warming up) does not count
#     DEVICE=D     what ours trains on (default cpu). With xla-cpu the plugin for the processor is installed
#                  beside, and a second start, which finds its programs on disk, is measured too
#     QAT=none     without quantisation in the cases "mixed" and "one-set"
#     TOKENIZER=F  another tokenizer.model, of 8192 pieces as the published base has; without it the
#                  bundled base's is used, in both programs
#
# Everything made lies under build/bench, a virtual environment with upstream in it too.
set -euo pipefail
cd "$(dirname "$0")/.."
source bench/program.sh

venv=$work/venv
if [[ ! -x $venv/bin/python ]] || ! "$venv/bin/python" -c "import needle.model.finetune" 2>/dev/null; then
  echo "making the virtual environment" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "cactus-needle[train]==2.0.15"
fi
# Upstream takes the tokenizer that lies beside its own module.
package=$("$venv/bin/python" -c "import needle.model.tokenizer as t; print(t.TOKENIZER_DIR)")
mkdir -p "$package"
full_size_base
cp "$work/tokenizer.model" "$package/tokenizer.model"

export NEEDLE_CACHE_DIR=$work/cache
device=${DEVICE:-cpu}
plugins=$work/plugins  # not in upstream's environment: its JAX is to run as it comes
if [[ $device == xla-cpu && ! -d $plugins ]]; then
  "$venv/bin/pip" install --quiet --no-deps --target "$plugins" "lammps-jax-pjrt-cpu==0.11.2"
fi

DO_NOT_TRACK=1 NEEDLE_TELEMETRY=0 HF_HUB_OFFLINE=1 JAX_PLATFORMS=cpu \
  exec "$venv/bin/python" bench/train_vs_upstream.py --work "$work" --needle "$needle" \
  --rows examples/home/train.jsonl \
  --device "$device" --plugins "$plugins" --qat "${QAT:-auto}" --turns "${TURNS:-3}" --steps "${STEPS:-2}" "$@"
