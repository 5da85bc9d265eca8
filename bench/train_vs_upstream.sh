#!/usr/bin/env bash
# One LoRA step of the full-size model, here and in upstream's trainer (JAX on the CPU), on the same rows
# in the same order. The two take turns; the first two steps of each turn (compilation, warming up) do not
# count. Prints seconds a step of each and their ratio.
#
#   bench/train_vs_upstream.sh [STEPS=4] [TURNS=2]
#
# TOKENIZER=FILE names another tokenizer.model (of 8192 pieces, as the published base has); without it
# the bundled base's is used, in both programs. Everything made lies under build/bench.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-4}
turns=${2:-2}
batch=16
work=$PWD/build/bench
mkdir -p "$work"
tokenizer=${TOKENIZER:-data/bundled/tokenizer.model}
echo "tokenizer $tokenizer"

cmake --preset release -DNEEDLE_TESTS=OFF >/dev/null
cmake --build --preset release --target needle_cli >/dev/null
needle=$PWD/build/release/bin/needle

venv=$work/venv
if [[ ! -x $venv/bin/python ]] || ! "$venv/bin/python" -c "import needle.model.finetune" 2>/dev/null; then
  echo "making the virtual environment"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "cactus-needle[train]==2.0.15"
fi
# Upstream takes the tokenizer that lies beside its own module.
package=$("$venv/bin/python" -c "import needle.model.tokenizer as t; print(t.TOKENIZER_DIR)")
mkdir -p "$package"
cp "$tokenizer" "$package/tokenizer.model"

cp "$tokenizer" "$work/tokenizer.model"
[[ -f $work/base.pkl ]] || "$needle" init --preset base --seed 0 --tokenizer "$work/tokenizer.model" --out "$work/base.pkl"
# As many rows as the steps of a turn take; the same file, seed and batch give both the same batches.
head -n $((batch * (steps + 2))) examples/home/train.jsonl >"$work/rows.jsonl"

ours() {
  "$needle" finetune "$work/rows.jsonl" --checkpoint "$work/base.pkl" --epochs 1 --batch-size $batch \
    --val-split 0 --out "$work/ours.pkl" --log "$work/ours.jsonl" >/dev/null
  grep -o '"seconds":[0-9.e-]*' "$work/ours.jsonl" | cut -d: -f2 | tail -n +3
}
theirs() {
  DO_NOT_TRACK=1 NEEDLE_TELEMETRY=0 HF_HUB_OFFLINE=1 JAX_PLATFORMS=cpu "$venv/bin/python" - \
    "$work/rows.jsonl" "$work/base.pkl" "$work/theirs.pkl" $batch <<'PY' | grep '^seconds ' | cut -d' ' -f2 | tail -n +3
import sys, time, types, needle.model.finetune as f
data, base, out, batch = sys.argv[1:5]
last = [time.perf_counter()]
def emit(line, *rest, **kw):
    now = time.perf_counter()
    if str(line).strip().startswith("step "):
        print("seconds", now - last[0], flush=True)
    last[0] = now
args = types.SimpleNamespace(jsonl_path=data, checkpoint=base, epochs=1, batch_size=int(batch), lr=1e-4,
    lora_rank=16, lora_alpha=32.0, max_len=1024, val_split=0.0, seed=0, generate=0, workers=1, model="",
    checkpoint_dir=".", out=out, qat_bits="auto")
f.finetune_local(args, emit)
PY
}
: >"$work/ours.txt"; : >"$work/theirs.txt"
for ((turn = 1; turn <= turns; ++turn)); do
  echo "turn $turn of $turns"
  ours >>"$work/ours.txt"
  theirs >>"$work/theirs.txt"
done
mean() { awk '{s += $1; n++} END {if (n == 0) exit 1; printf "%.3f", s / n}' "$1"; }
a=$(mean "$work/ours.txt"); b=$(mean "$work/theirs.txt")
printf '%s, %s threads\n' "$(awk -F': ' '/model name/ {print $2; exit}' /proc/cpuinfo)" "$(nproc)"
printf '  needle.cpp    %8.3f s/step\n  upstream JAX  %8.3f s/step\n  ratio         %8.1f\n' "$a" "$b" \
  "$(awk "BEGIN {print $b / $a}")"
