#!/usr/bin/env bash
# Installs what is missing, builds the preset "dev" and runs every test. Safe to repeat; a second run
# builds only what changed. Ends with CTest's summary and its exit status.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
needle_packages tests
scripts/pjrt_plugins.sh
cmake --preset dev
cmake --build --preset dev -j "$(needle_jobs)"
ctest --preset dev -j 2
