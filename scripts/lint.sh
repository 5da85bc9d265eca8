#!/usr/bin/env bash
# Format (clang-format), layers (check_layers.py) and checks (clang-tidy). Exits 1 when one of them
# finds something.
#
#   scripts/lint.sh [--fast] [FILE.cc...]    --fast leaves clang-tidy out; FILEs are what it looks at
set -uo pipefail
cd "$(dirname "$0")/.."
for tool in clang-format clang-tidy git cmake; do
  command -v "$tool" >/dev/null || { echo "scripts/lint.sh needs $tool (apt install clang-format clang-tidy)" >&2; exit 2; }
done
fast=no
if [[ ${1:-} == --fast ]]; then fast=yes; shift; fi
status=0

echo "== clang-format"
git ls-files '*.cc' '*.h' '*.hpp' | xargs clang-format --dry-run --Werror || status=1

echo "== layers"
python3 scripts/check_layers.py src || status=1

if [[ $fast == no ]]; then
  echo "== clang-tidy"
  cmake --preset clang >/dev/null || exit 2
  if [[ $# -gt 0 ]]; then files=("$@"); else mapfile -t files < <(git ls-files 'src/*.cc' 'apps/*.cc' 'tools/*.cc'); fi
  case $(uname -s) in Linux | Darwin) skip='os_.*win\.cc|os_win\.cc' ;; *) skip='posix\.cc' ;; esac
  printf '%s\n' "${files[@]}" | grep -vE "$skip" |
    xargs -P "$(nproc)" -n 1 clang-tidy -p build/clang --quiet 2> >(grep -v "warnings generated\|Suppressed\|Use -header-filter" >&2) || status=1
fi
if [[ $status -eq 0 ]]; then echo "clean"; else echo "not clean"; fi
exit $status
