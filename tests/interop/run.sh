#!/usr/bin/env bash
# Do files travel between this program and upstream's, and into needle-rs? Makes a virtual environment
# with both (cactus-needle 2.0.15, needle-rs 0.3.1), runs every direction, and writes docs/interop.md.
# Not part of the tests: it needs a package index and takes minutes.
#
#   tests/interop/run.sh [NEEDLE_BINARY=build/release/bin/needle]
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
needle=$(realpath "${1:-build/release/bin/needle}")
work=$root/build/interop
rm -rf "$work/files"
mkdir -p "$work/files"

venv=$work/venv
python=$venv/bin/python
if ! "$python" -c "import needle.model.finetune, needle_rs" 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "cactus-needle[train]==2.0.15" "needle-rs==0.3.1"
fi
export NEEDLE_TELEMETRY=0 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 JAX_PLATFORMS=cpu
package=$("$python" -c "import needle.model.tokenizer as t; print(t.TOKENIZER_DIR)")
cp tests/golden/text/tokenizer_1024.model "$package/tokenizer.model"

cd "$work/files"
cp "$root/tests/golden/text/tokenizer_1024.model" tokenizer.model
cp "$root/tests/golden/data/traj.jsonl" data.jsonl
results=()
# check NAME COMMAND...: runs it, remembers whether it worked.
check() {
  local name=$1; shift
  echo "== $name"
  if "$@" >log.txt 2>&1; then results+=("| $name | yes |"); else
    results+=("| $name | **no** |"); tail -n 20 log.txt; failed=yes
  fi
}
failed=no
settings=(--epochs 1 --batch-size 8 --lr 5e-3 --lora-rank 4 --lora-alpha 8 --max-len 224 --seed 3)

upstream_finetune() { "$venv/bin/needle" finetune data.jsonl --checkpoint "$1" --out "$2" "${settings[@]}" && test -s "$2"; }
upstream_build() { "$venv/bin/needle" build "$1" --lora "$2" --out "$3" && test -s "$3"; }
# Both archives of one checkpoint and adapter: the same size, at most a few bytes apart (codes on the
# border between two levels).
alike() {
  "$python" - "$1" "$2" <<'PY'
import sys
a, b = (open(p, "rb").read() for p in sys.argv[1:3])
assert len(a) == len(b), (len(a), len(b))
differ = sum(x != y for x, y in zip(a, b))
print(len(a), "bytes,", differ, "differ")
assert differ <= max(8, len(a) // 20000), differ
PY
}
loads_upstream() { "$python" -c "
import sys
from needle.model.run import load_checkpoint
params, config = load_checkpoint(sys.argv[1])[:2]
print(config)" "$1"; }
# needle-rs and this program write the same tokens with the bundled base's archive.
generates() { "$python" "$root/tests/interop/generate.py" "$needle" "$1" "$root/examples/home/heldout.jsonl" 20; }

"$needle" init --preset tiny --seed 7 --out base.pkl
check "a checkpoint that we wrote loads in upstream" loads_upstream base.pkl
"$needle" finetune data.jsonl --checkpoint base.pkl --out ours.pkl "${settings[@]}" --long cut
"$needle" build base.pkl --lora ours.pkl --out ours_ours.cact
check "our adapter goes through upstream's build" upstream_build base.pkl ours.pkl ours_theirs.cact
check "and gives the archive that our build gives" alike ours_ours.cact ours_theirs.cact
check "upstream fine-tunes our checkpoint" upstream_finetune base.pkl theirs.pkl
check "upstream's adapter goes through our build" "$needle" build base.pkl --lora theirs.pkl --out theirs_ours.cact
check "upstream builds it too" upstream_build base.pkl theirs.pkl theirs_theirs.cact
check "and gives the archive that our build gives, again" alike theirs_ours.cact theirs_theirs.cact
check "upstream's archive verifies against its checkpoint and adapter here" \
  "$needle" verify base.pkl theirs_theirs.cact --lora theirs.pkl
"$needle" build bundled --out bundled.cact
check "our archive loads in needle-rs, which writes the tokens that we write" generates bundled.cact

{
  echo "# Which files travel"
  echo
  echo "Written by \`tests/interop/run.sh\`: this program $("$needle" --version | cut -d' ' -f2), cactus-needle"
  echo "$("$python" -c "import importlib.metadata as m; print(m.version('cactus-needle'))"), needle-rs $("$python" -c "import importlib.metadata as m; print(m.version('needle-rs'))"), $("$python" --version)."
  echo
  echo "| what | works |"
  echo "|---|---|"
  printf '%s\n' "${results[@]}"
  echo
  echo "Archives of the two programs may differ in single codes that lie on the border between two levels."
} >"$root/docs/interop.md"
cat "$root/docs/interop.md"
[[ $failed == no ]]
