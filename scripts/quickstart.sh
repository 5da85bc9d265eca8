#!/usr/bin/env bash
# From a fresh machine to a tuned model: installs what is missing, builds, scores the bundled base on
# tasks that it has never seen, fine-tunes it on examples, builds a 4-bit archive, scores again, and
# answers one query. Safe to repeat; everything it makes is under build/.
set -euo pipefail
cd "$(dirname "$0")/.."

data=examples/home
epochs=9
lr=4e-3
rank=32
alpha=64
max_len=1024
query="timer for the pasta, 12 minutes"

source scripts/packages.sh
needle_packages

echo "== building"
cmake --preset release -DNEEDLE_TESTS=OFF >/dev/null
cmake --build --preset release --target needle_cli -j "$(needle_jobs)"
needle=$PWD/build/release/bin/needle
out=build/quickstart
mkdir -p "$out"

# score ARCHIVE NAME: prints the summary, keeps the document in NAME.json.
score() {
  "$needle" eval "$1" "$data/heldout.jsonl" --json >"$out/$2.json" 2>"$out/$2.txt"
  grep -E "^  (accuracy|calls|refusals) " "$out/$2.txt"
}
# number KEY FILE: a number at the top of a JSON document.
number() { grep -o "\"$1\":[0-9.]*" "$2" | head -n 1 | cut -d: -f2; }

echo "== the bundled base, before"
"$needle" build bundled --bits 4 --out "$out/base.cact"
score "$out/base.cact" base

echo "== fine-tuning"
start=$SECONDS
"$needle" finetune "$data/train.jsonl" --checkpoint bundled --out "$out/lora.pkl" \
  --epochs "$epochs" --lr "$lr" --lora-rank "$rank" --lora-alpha "$alpha" --max-len "$max_len"
took=$((SECONDS - start))

echo "== the tuned model"
"$needle" build bundled --lora "$out/lora.pkl" --out "$out/tuned.cact"
"$needle" verify bundled "$out/tuned.cact" --lora "$out/lora.pkl"
score "$out/tuned.cact" tuned

echo
printf '  %-24s %-16s %s\n' "" "bundled base" "after $took s of fine-tuning"
printf '  %-24s %-16s %s\n' "exact on $(number rows "$out/base.json") held-out rows" \
  "$(number exact "$out/base.json")" "$(number exact "$out/tuned.json")"
printf '  %-24s %-16s %s\n' "accuracy" \
  "$(number accuracy "$out/base.json")" "$(number accuracy "$out/tuned.json")"
echo
echo "  query   $query"
echo "  answer  $("$needle" run "$out/tuned.cact" --tools "$data/tools.json" --query "$query" 2>/dev/null)"
