#!/usr/bin/env bash
# Builds the project for systems that this machine is not, and runs what can be run.
#
#   scripts/cross_check.sh [windows] [aarch64] [macos]     all three without arguments
#
#   windows   x86-64, mingw-w64; the tests and the program run under wine
#   aarch64   Linux, the cross g++; both run under qemu-user (the NEON kernels among them)
#   macos     arm64, the clang and libc++ of the "ziglang" package: compiled and linked, never run
#
# About an hour on two cores. It installs what it needs (Debian packages; ziglang into an environment of its
# own), builds into build/cross-*, and may be repeated. One line a target at the end: tests passed of total.
# Ends with status 1 when a build or a test fails. JOBS=n sets the jobs of builds and tests; FILTER_<target>
# (such as FILTER_aarch64) is a filter of GoogleTest for a shorter run; PROGRAMS="base exec" names the test
# programs to build and run.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

jobs=${JOBS:-$(needle_jobs)}
libraries=(needle needle_train_shared needle_cli)
# Not here: pjrt_model and the "slow" programs need real PJRT plugins or many minutes; the downloads
# of hub (NEEDLE_HTTP) and the oracle of text (SentencePiece) have no foreign libraries to link.
tests=(base json tensor text quant ops kernels model grammar data format exec train runtime eval
  tools hub api backend_pjrt apps)
if [[ -n ${PROGRAMS:-} ]]; then read -ra tests <<<"$PROGRAMS"; fi
summary=()
failed=0
# Tests left out of an emulator's run, as a filter of GoogleTest. qemu-user forks where posix_spawn asks for a
# child in the same memory, so a program that is not there is not reported to the parent; the emulated
# program cannot start itself again, as it does to try a plugin; and whole trainings, hundreds of runs of
# the program and sums in double precision over every parameter (one of four stays) take it more than a quarter
# of an hour each (FILTER_aarch64='*' runs them).
declare -A left_out=([aarch64]="-Process.SaysWhenThereIsNoSuchProgram:Packing.*:Chunks.*:*/FullGradients.*")
left_out[aarch64]+=":ReferenceGradients.*OnAlt:ReferenceGradients.*TheHeads*"
left_out[aarch64]+=":Kills.*:TrainingStops.*:TrainingLog.*:Finetune.StopsWhenAskedAndGoesOnToTheSameAdapter"
left_out[aarch64]+=":Hostile.AStoppedRunGoesOnWithItsOwnSettingsAndWholeStateOnly"
for name in TakesAGpuThatWorks ShowsAPluginThatCrashesAndGoesOnWithTheProcessor StopsAPluginThatHangs \
  ANamedPlatformThatFailsShowsTheTableNamesTheFailureAndExitsWith1 \
  FinetuneStopsOnANamedDeviceThatFailsAndFallsBackOtherwise RunAndEvalOfACheckpointStopOnANamedDeviceThatFails; do
  left_out[aarch64]+=":Devices.$name"
done

# Headers that are the same for every target, and fmt by its headers alone: into a prefix.
foreign_headers() {
  local prefix=$1 header
  mkdir -p "$prefix/include" "$prefix/share/cmake" "$prefix/lib/cmake/fmt"
  for header in hwy CLI fmt nlohmann; do
    cp -r "/usr/include/$header" "$prefix/include/"
  done
  cp -r /usr/share/cmake/CLI11 /usr/share/cmake/nlohmann_json "$prefix/share/cmake/"
  cp cmake/foreign/fmt-config.cmake "$prefix/lib/cmake/fmt/"
}

# Packages of another architecture, unpacked into a folder and not installed: apt keeps a state of
# its own beside it, so that this system's list of architectures stays as it is.
foreign_packages() {
  local architecture=$1 into=$2 state=$2.apt package
  shift 2
  [[ -e $state/done ]] && return 0
  mkdir -p "$state/lists/partial" "$state/archives/partial" "$state/debs" "$into"
  local options=(-o "Dir::State::lists=$PWD/$state/lists" -o "Dir::Cache=$PWD/$state"
    -o "APT::Architectures::=$(dpkg --print-architecture)" -o "APT::Architectures::=$architecture"
    -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update -qq
  (cd "$state/debs" && apt-get "${options[@]}" download -qq "${@/%/:$architecture}")
  for package in "$state"/debs/*.deb; do dpkg-deb -x "$package" "$into"; done
  touch "$state/done"
}

# configure <folder> <toolchain> <source> <build> [options...]
configure() {
  local folder=$1 toolchain=$2 source=$3 build=$4
  shift 4
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/$toolchain" \
    -DNEEDLE_FOREIGN_PREFIX="$PWD/$folder/prefix" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 \
    "$@" >"$build.configure.log" || { tail -20 "$build.configure.log"; return 1; }
}

# foreign_build <folder> <toolchain> <tests: ON or OFF> [options...]
foreign_build() {
  local folder=$1 toolchain=$2 with_tests=$3 targets=("${libraries[@]}")
  shift 3
  foreign_headers "$folder/prefix"
  if [[ $with_tests == ON ]]; then
    configure "$folder" "$toolchain" /usr/src/googletest "$folder/gtest" -DBUILD_GMOCK=OFF \
      -DCMAKE_INSTALL_PREFIX="$PWD/$folder/prefix" || return 1
    nice -n 10 ninja -C "$folder/gtest" -j"$jobs" install >/dev/null || return 1
    targets+=(needle_consumer "${tests[@]/%/_test}")
  fi
  configure "$folder" "$toolchain" . "$folder/needle" -DNEEDLE_HTTP=OFF -DNEEDLE_SENTENCEPIECE=OFF \
    -DNEEDLE_TESTS="$with_tests" -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST "$@" || return 1
  grep "is left out" "$folder/needle.configure.log" || true
  nice -n 10 ninja -C "$folder/needle" -j"$jobs" -k0 "${targets[@]}"
}

# emulate_children <folder> <emulator...>: programs that tests start cannot be started by this system, so a
# script that emulates them stands in their place.
emulate_children() {
  local folder=$1 name child
  shift
  for name in needle write_file_child probe_child; do
    child=$folder/needle/bin/$name
    if [[ -e $child && $(head -c 4 "$child" | tail -c 3) == ELF ]]; then
      mv "$child" "$child.program"
      printf '#!/bin/sh\nexec %s "%s" "$@"\n' "$*" "$PWD/$child.program" >"$child"
      chmod +x "$child"
    fi
  done
}

# run_program <log> <filter> <emulator and test program...>: a test program once, its tests dealt to
# `jobs` processes side by side; their outputs come one after the other into the log.
run_program() {
  local log=$1 filter=$2 shard status=0 pids=()
  shift 2
  for ((shard = 0; shard < jobs; ++shard)); do
    GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$shard timeout "${TEST_SECONDS:-3600}" nice -n 10 "$@" \
      --gtest_filter="$filter" >"$log.$shard" 2>&1 &
    pids+=($!)
  done
  for ((shard = 0; shard < jobs; ++shard)); do
    wait "${pids[shard]}" || status=1
  done
  cat "$log".[0-9]* >"$log"
  rm "$log".[0-9]*
  return "$status"
}

# run_tests <target> <folder> <suffix> <emulator...>: each program once; counts what GoogleTest says.
run_tests() {
  local target=$1 folder=$2 suffix=$3 name log passed=0 total=0 skipped=0 ran shards good
  local filter="FILTER_$target" before
  shift 3
  [[ -z ${left_out[$target]:-} ]] || echo "-- $target: left out: ${left_out[$target]#-}"
  for name in "${tests[@]}"; do
    log=$folder/$name.log
    before=$SECONDS
    if ! run_program "$log" "${!filter:-${left_out[$target]:-*}}" \
      "$@" "$folder/needle/bin/${name}_test$suffix"; then
      failed=1
      echo "-- $target: ${name}_test failed, see $log"
      tr -d '\r' <"$log" | grep -E '^\[  FAILED  \] [^ ]+$' || tail -5 "$log"
    fi
    ran=$(tr -d '\r' <"$log" | sed -nE 's/^\[==========\] Running ([0-9]+) tests? .*/\1/p' |
      awk '{ sum += $1 } END { print sum + 0 }')
    shards=$(grep -cE '^\[==========\] Running' "$log" || true)
    good=$(tr -d '\r' <"$log" | grep -cE '^\[       OK \]' || true)
    skipped=$((skipped + $(grep -cE '^\[  SKIPPED \] .*\(' "$log" || true)))
    # A process that did not say how many tests it has has failed as one.
    total=$((total + ran + jobs - shards))
    passed=$((passed + good))
    echo "-- $target: ${name}_test $good of $ran ($((SECONDS - before)) s)"
  done
  summary+=("$target: built; $passed of $total tests passed, $skipped skipped")
}

# step <words...>: runs one command of the program; its outputs go to the log.
step() {
  echo "\$ needle $*" >&2
  "${program[@]}" "$@"
}

# journey: the program from --version to the answer of a model that it tuned for one step, and the
# client of the shared libraries. Stops at the first failure.
journey() {
  local top=../../..
  local tools=$top/examples/home/tools.json
  head -n 6 "$top"/examples/home/train.jsonl >few.jsonl
  head -n 1 few.jsonl >one.jsonl
  mkdir client
  step --version | tee version.txt && grep -qE '^needle [0-9]' version.txt &&
    step devices &&
    step devices --json >devices.json && python3 -m json.tool devices.json &&
    step init --preset tiny --out tiny.pkl --tokenizer "$top"/tests/golden/text/tokenizer_1024.model &&
    step finetune few.jsonl --checkpoint bundled --epochs 1 --batch-size 6 --val-split 0 --out adapter.pkl &&
    step build bundled --lora adapter.pkl --out model.cact &&
    step verify bundled model.cact --lora adapter.pkl &&
    step eval model.cact few.jsonl &&
    step run model.cact --tools "$tools" --query "set a timer for ten minutes" --json >answer.json &&
    python3 -m json.tool answer.json >/dev/null && grep -q '"function_calls":\[{"name":' answer.json &&
    "${client[@]}" "$top"/tests/golden/nano/nano.pkl one.jsonl "$(cat "$tools")" client
}

# use_program <target> <folder> <suffix> <emulator...>: the program as a person uses it, once.
use_program() {
  local target=$1 folder=$2 suffix=$3 bin=$PWD/$2/needle/bin
  shift 3
  local program=("$@" "$bin/needle$suffix") client=("$@" "$bin/needle_consumer$suffix")
  [[ ! -e $bin/needle.program ]] || program=("$@" "$bin/needle.program")
  rm -rf "$folder/journey" && mkdir "$folder/journey"
  if (cd "$folder/journey" && NEEDLE_CACHE_DIR=$PWD/cache journey) >"$folder/journey.log" 2>&1; then
    echo "-- $target: needle from --version to an answer, and a client of the libraries: passed"
  else
    failed=1
    echo "-- $target: needle failed, see $folder/journey.log"
    tail -5 "$folder/journey.log"
    summary[-1]+="; the program FAILED"
  fi
}

windows() {
  needle_install g++-mingw-w64-x86-64-posix libz-mingw-w64-dev wine wine64 googletest
  local folder=build/cross-windows
  mkdir -p "$folder"
  echo "-- windows: RapidCheck is packaged for no Windows target; its tests do not run there"
  if ! foreign_build "$folder" windows-x86_64-mingw.cmake ON -DNEEDLE_RAPIDCHECK=OFF; then
    summary+=("windows: the build FAILED") failed=1
    return 0
  fi
  export WINEPREFIX=$PWD/$folder/wine WINEDEBUG=-all
  wine cmd /c exit  # makes the prefix, which two processes at once could not
  run_tests windows "$folder" .exe wine
  use_program windows "$folder" .exe wine
}

aarch64() {
  needle_install g++-aarch64-linux-gnu qemu-user googletest
  local folder=build/cross-aarch64
  mkdir -p "$folder"
  foreign_packages arm64 "$folder/prefix" zlib1g zlib1g-dev librapidcheck-dev
  if ! foreign_build "$folder" linux-aarch64.cmake ON; then
    summary+=("aarch64: the build FAILED") failed=1
    return 0
  fi
  local emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
  emulate_children "$folder" "${emulator[@]}"
  run_tests aarch64 "$folder" "" "${emulator[@]}"
  use_program aarch64 "$folder" "" "${emulator[@]}"
}

macos() {
  needle_install python3-venv
  local folder=build/cross-macos tool zig
  mkdir -p "$folder/bin"
  [[ -x $folder/venv/bin/python ]] || python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -q 'ziglang>=0.13'
  zig=$("$folder/venv/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')/zig
  for tool in cc c++; do
    printf '#!/bin/sh\nexec "%s" %s -target aarch64-macos.11.0 "$@"\n' "$zig" "$tool" >"$folder/bin/zig-$tool"
  done
  for tool in ar ranlib; do
    printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$tool" >"$folder/bin/zig-$tool"
  done
  chmod +x "$folder"/bin/zig-*
  # The small scripts are written anew each time; ccache is to look at what stands in them.
  export CCACHE_COMPILERCHECK=content CCACHE_COMPILERTYPE=clang
  export ZIG_GLOBAL_CACHE_DIR=$PWD/$folder/cache ZIG_LOCAL_CACHE_DIR=$PWD/$folder/cache
  if foreign_build "$folder" macos-arm64-zig.cmake OFF -DNEEDLE_ZIG_BIN="$PWD/$folder/bin"; then
    summary+=("macos: compiled and linked (libraries and program); nothing ran, no test was built")
  else
    summary+=("macos: the build FAILED") failed=1
  fi
}

needle_packages tests
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(windows aarch64 macos)
for target in "${targets[@]}"; do
  case $target in
    windows | aarch64 | macos) "$target" ;;
    *)
      echo "$target is no target here; use windows, aarch64 or macos" >&2
      exit 2
      ;;
  esac
done
printf '%s\n' "${summary[@]}"
exit "$failed"
