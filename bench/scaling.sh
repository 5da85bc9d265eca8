#!/usr/bin/env bash
# How a LoRA step of the full-size model grows with rows a batch, tokens a row, tools a request and
# threads: prints tables and draws docs/scaling.svg. About five minutes.
#
#   bench/scaling.sh [CHART.svg]
#     STEPS=2      counted steps of each point (the one before them does not count)
#     TOKENIZER=F  another tokenizer.model than the bundled base's
#
# Everything made but the chart lies under build/bench, a virtual environment with matplotlib too.
set -euo pipefail
cd "$(dirname "$0")/.."
source bench/program.sh

venv=$work/chart-venv
if ! "$venv/bin/python" -c "import matplotlib" 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet matplotlib
fi
full_size_base
"$venv/bin/python" bench/scaling.py --work "$work" --needle "$needle" --rows examples/home/train.jsonl \
  --chart "${1:-docs/scaling.svg}" --steps "${STEPS:-2}"
