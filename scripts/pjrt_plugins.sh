#!/usr/bin/env bash
# Installs the PJRT CPU plugins that the tests use from PyPI into build/pjrt: about 200 MB of
# downloads, 750 MB on disk, Linux x86-64 only. Safe to repeat; a second run does nothing. When
# they cannot be had it says so and succeeds: the tests that want them are then skipped by name.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=(lammps-jax-pjrt-cpu==0.11.2 fastatomstruct-xla-cpu==2026.6.23 xla-cpu-pjrt==0.0.1)
folder=build/pjrt
[[ -f $folder/installed && $(<"$folder/installed") == "${wanted[*]}" ]] && exit 0

without() {
  echo "== no PJRT plugins: $1; the tests that use them will be skipped" >&2
  exit 0
}
[[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] || without "they are for Linux x86-64"
python3 -m pip --version >/dev/null 2>&1 || without "python3 has no pip"
echo "== installing ${wanted[*]} into $folder"
rm -rf "$folder.new"
python3 -m pip install --quiet --no-deps --disable-pip-version-check --target "$folder.new" "${wanted[@]}" ||
  without "pip could not install them"
rm -rf "$folder"
mv "$folder.new" "$folder"
echo "${wanted[*]}" >"$folder/installed"
