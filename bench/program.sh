# For the scripts beside it, from the project's root: builds the program as it is shipped ($needle), makes
# the folder of what a benchmark leaves ($work), and full_size_base writes a base of the published size
# with random weights into it, with $TOKENIZER or the bundled base's tokenizer.
work=$PWD/build/bench
needle=$PWD/build/release/bin/needle
mkdir -p "$work"
cmake --preset release -DNEEDLE_TESTS=OFF >/dev/null
cmake --build --preset release --target needle_cli >/dev/null

full_size_base() {
  cp "${TOKENIZER:-data/bundled/tokenizer.model}" "$work/tokenizer.model"
  "$needle" init --preset base --seed 0 --tokenizer "$work/tokenizer.model" --out "$work/base.pkl" >/dev/null
}
