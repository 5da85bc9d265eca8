#!/usr/bin/env bash
# Makes the bundled base anew: corpus, tokenizer, then two rounds of pretraining (short prompts, then
# prompts of ordinary length with some copying drills). About an hour and a quarter on two cores.
# An interrupted round goes on when the script is run again. Results: build/base/{base.pkl,tokenizer.model}.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset release -DNEEDLE_TESTS=OFF >/dev/null
cmake --build --preset release --target needle_cli make_corpus train_tokenizer
bin=build/release/bin
out=build/base
mkdir -p "$out"

"$bin/make_corpus" --rows 120000 --seed 1 --out "$out/long.jsonl"
"$bin/make_corpus" --rows 400 --seed 1 --part valid --out "$out/valid.jsonl"
"$bin/make_corpus" --rows 24000 --seed 3 --drills 1 --out "$out/drills.jsonl"
"$bin/make_corpus" --rows 80000 --seed 101 --tools-chars 260 --out "$out/short.jsonl"
head -n 48000 "$out/long.jsonl" >"$out/mixed.jsonl"
head -n 6000 "$out/drills.jsonl" >>"$out/mixed.jsonl"
[ -f "$out/tokenizer.model" ] || "$bin/train_tokenizer" "$out/long.jsonl" --out "$out/tokenizer.model"

# round NAME ARGS...: one run of pretraining, skipped when done, resumed when interrupted.
round() {
  local name=$1
  shift
  [ -f "$out/$name.pkl" ] && return
  local resume=()
  [ -f "$out/$name.pkl.state" ] && resume=(--resume)
  "$bin/needle" pretrain --tokenizer "$out/tokenizer.model" --val "$out/valid.jsonl" \
    --out "$out/$name.pkl" --log "$out/$name.log" "${resume[@]}" "$@"
  [ -f "$out/$name.pkl" ]
}
round first "$out/short.jsonl" --config data/bundled/config.json --copy-head \
  --steps 1000 --batch-size 32 --group 4 --lr 3e-3 --lm-weight 0.1 --max-len 320
round base "$out/mixed.jsonl" --checkpoint "$out/first.pkl" \
  --steps 1750 --batch-size 16 --group 4 --lr 2e-3 --lm-weight 0.05 --max-len 640
"$bin/needle" inspect "$out/base.pkl" | head -n 20
