#!/usr/bin/env bash
# Fuzzes every reader of files: builds the preset "fuzz" (clang, address and undefined-behaviour
# sanitizers), makes seeds from the golden files, and runs each target.
#
#   scripts/fuzz.sh [SECONDS=60] [TARGET...]      a target is "pickle" for tests/fuzz/fuzz_pickle.cc
#
# Exits 1 when a target crashes, leaks, hangs or needs more than 2 GB for one input; the input is
# then in build/fuzz/crashes. Found inputs are kept in build/fuzz/corpus for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "usage: scripts/fuzz.sh [SECONDS] [TARGET...]" >&2; exit 2; }
shift || true
command -v clang++ >/dev/null || { echo "scripts/fuzz.sh needs clang (apt install clang)" >&2; exit 2; }

build=build/fuzz
cmake --preset fuzz -DNEEDLE_TESTS=OFF -DNEEDLE_APPS=OFF >/dev/null
cmake --build "$build" --target fuzz -j "${JOBS:-$(nproc)}"
if [[ $# -gt 0 ]]; then targets=("$@"); else
  targets=(); for source in tests/fuzz/fuzz_*.cc; do name=$(basename "$source" .cc); targets+=("${name#fuzz_}"); done
fi
"$build/bin/make_fuzz_seeds" "$build/seeds"
mkdir -p "$build/crashes"

failed=()
for target in "${targets[@]}"; do
  mkdir -p "$build/corpus/$target" "$build/seeds/$target"
  case $target in
    pickle | checkpoint | adapter) dict=tests/fuzz/pickle.dict ;;
    json | jsonl | safetensors) dict=tests/fuzz/json.dict ;;
    *) dict= ;;
  esac
  echo "== $target: ${seconds} s"
  if ! "$build/bin/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
      -malloc_limit_mb=512 -max_len=65536 ${dict:+-dict="$dict"} -print_final_stats=1 -verbosity=0 \
      -artifact_prefix="$build/crashes/$target-" "$build/corpus/$target" "$build/seeds/$target" \
      > "$build/$target.log" 2>&1; then
    failed+=("$target")
    tail -n 40 "$build/$target.log"
  fi
  grep -E "number_of_executed_units|peak_rss" "$build/$target.log" | tr '\n' ' ' || true
  echo
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "failed: ${failed[*]} (inputs in $build/crashes)"
  exit 1
fi
echo "all ${#targets[@]} targets ran ${seconds} s without a finding"
