#!/usr/bin/env bash
# Checks a device on a machine that has the device, its PJRT plugin, JAX with flax, optax and sentencepiece,
# and nothing else: no network, no compiler, no Debian packages.
#
#   scripts/device_check.sh pack     on a machine with a compiler and a network: puts one program without
#                                    Debian's shared libraries and upstream's wheel into build/device_check
#   scripts/device_check.sh 1        on the machine with the device: needle doctor; then the full-size model on
#                                    the device and on the processor, losses step by step
#   scripts/device_check.sh 2        there: upstream's trainer and ours on the same device and rows
#
# A part takes at most four minutes and writes one document, build/device_check/part1.json or part2.json
# ($OUT/... when OUT is set), also when something fails. What a part needs is this source tree with
# build/device_check in it. Status: 0 all is right, 1 a command failed or took too long, 3 losses or doctor
# are off.
#
#   DEVICE=cuda    as finetune takes it; xla-cpu tries the check itself on any machine
#   STEPS=50       steps of part 1; a fifth of them in part 2
#   PRESET=base    tiny: a small model, for a try
#   LIMIT=240      seconds of a part
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/device_check

pack() {
  local build=build/device_check_build shared
  local prefix=$build/prefix
  source scripts/packages.sh
  needle_packages
  mkdir -p "$folder" "$prefix/include" "$prefix/lib/cmake/fmt"
  # fmt by its headers alone, as in the builds for other systems.
  cp -r /usr/include/fmt "$prefix/include/"
  cp cmake/foreign/fmt-config.cmake "$prefix/lib/cmake/fmt/"
  cmake --preset release -B "$build" -DNEEDLE_TESTS=OFF -DNEEDLE_HTTP=OFF -DNEEDLE_SENTENCEPIECE=OFF \
    -Dfmt_DIR="$PWD/$prefix/lib/cmake/fmt" -DCMAKE_INTERPROCEDURAL_OPTIMIZATION="${LTO:-ON}" \
    -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc" >/dev/null
  cmake --build "$build" --target needle_cli -j "$(needle_jobs)" >/dev/null
  strip -o "$folder/needle" "$build/bin/needle"
  shared=$(ldd "$folder/needle" | awk '{print $1}' |
    grep -vE '^(linux-vdso|/lib.*/ld-linux|lib(c|m|dl|pthread)\.so)' || true)
  if [[ -n $shared ]]; then
    echo "the program needs libraries that the other machine may not have: $shared" >&2
    exit 1
  fi
  rm -f "$folder"/*.whl
  python3 -m pip download --quiet --no-deps --disable-pip-version-check --dest "$folder" "cactus-needle==2.0.15"
  du -ch "$folder/needle" "$folder"/*.whl
}

case ${1:-} in
  pack) pack ;;
  1 | 2)
    exec python3 scripts/device_check.py --part "$1" --folder "$folder" --out "${OUT:-$folder}" \
      --device "${DEVICE:-cuda}" --steps "${STEPS:-50}" --preset "${PRESET:-base}" --limit "${LIMIT:-240}"
    ;;
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
    exit 2
    ;;
esac
