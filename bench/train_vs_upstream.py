"""Runs needle and upstream's trainer in turn on the same rows; see train_vs_upstream.sh."""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

UPSTREAM = """
import sys, time, types
import needle.model.finetune as f
data, base, out, batch, max_len, qat, epochs, full = sys.argv[1:9]
def emit(line, *rest, **kw):
    if "step " in str(line) and "loss" in str(line):
        print("STEP", time.time(), str(line).split()[-1], flush=True)
if full == "full":  # every parameter in place of LoRA's factors: the same step, loss and optimiser
    f.init_lora = lambda params, *rest: params
    f.merge_lora = lambda params, trained, scale: trained
args = types.SimpleNamespace(jsonl_path=data, checkpoint=base, epochs=int(epochs), batch_size=int(batch), lr=1e-4,
    lora_rank=16, lora_alpha=32.0, max_len=int(max_len), val_split=0.0, seed=0, generate=0, workers=1,
    model="", checkpoint_dir=".", out=out, qat_bits=qat)
try:
    f.finetune_local(args, emit)
except KeyError as error:  # it writes an adapter at the end, and there is none
    if full != "full" or error.args != ("A",):
        raise
"""


class Case:
    def __init__(self, name, what, rows, batch=16, max_len=1024, qat="auto", full_epochs=0, epochs=1,
                 whole=False):
        self.name, self.what, self.rows = name, what, rows
        self.batch, self.max_len, self.qat = batch, max_len, qat
        self.full = full_epochs > 0  # all parameters; each epoch is the same batch
        self.epochs = full_epochs or epochs
        self.whole = whole  # what counts is the time of the command, from start to adapter


def parsed(value):
    return json.loads(value) if isinstance(value, str) else value


def one_set(rows, count):
    """Rows that call only five of the tools, all of which declare these five."""
    names = ["set_timer", "set_lights", "get_weather", "set_thermostat", "create_note"]
    known = {t["name"]: t for row in rows for t in parsed(row["tools"])}
    declared = [known[name] for name in names]
    out = []
    for row in rows:
        calls = parsed(row.get("answers", row.get("function_calls")))
        if "system" not in row and all(c["name"] in names for c in calls):
            out.append(dict(row, tools=declared))
    return out[:count]


def filled(rows, length, count):
    """Rows of exactly `length` tokens that share nothing: noise words come first."""
    from needle.model.finetune import render_example
    from needle.model.tokenizer import get_tokenizer

    tokenizer, rng = get_tokenizer(), random.Random(1)

    def tokens(row):
        prompt, target = render_example(row)
        return len(tokenizer.encode(prompt)) + len(tokenizer.encode(target)) + 2

    out = []
    for row in rows:
        called = {c["name"] for c in parsed(row.get("answers", row.get("function_calls")))}
        declared = parsed(row["tools"])
        row = dict(row, tools=[t for t in declared if t["name"] in called] or declared[:1])
        row["system"] = ""
        while tokens(row) < length - 12:
            row["system"] = " ".join([row["system"], "".join(rng.choices("abcdefgh", k=5))]).strip()
        for _ in range(200):
            have = tokens(row)
            if have == length:
                break
            if have > length:
                row["system"] = row["system"][: -1]
            else:
                row["system"] += rng.choice(" qxzjkvw")
        if tokens(row) == length:
            out.append(row)
        if len(out) == count:
            break
    return out


def cases(args, steps):
    with open(args.rows) as file:
        rows = [json.loads(line) for line in file]
    qat = args.qat
    made = {
        "mixed": lambda: Case("mixed", f"`train.jsonl` as it is, QAT {qat}", rows[: 16 * steps],
                              qat=qat),
        "one-set": lambda: Case("one-set", f"one set of five tools, QAT {qat}",
                                one_set(rows, 16 * steps), qat=qat),
        "dense": lambda: Case("dense", "16 x 256 tokens, nothing shared or padded, QAT none",
                              filled(rows, 256, 16 * steps), max_len=256, qat="none"),
        "long": lambda: Case("long", "8 x 1024 tokens, nothing shared or padded, QAT none",
                             filled(rows, 1024, 8 * steps), batch=8, qat="none"),
        "full": lambda: Case("full", "all 45 M parameters, 16 x 256 tokens, nothing shared or padded",
                             filled(rows, 256, 16), max_len=256, qat="none", full_epochs=steps),
        "no-qat": lambda: Case("no-qat", "`train.jsonl` as it is, QAT none", rows[: 16 * steps],
                               qat="none"),
        "command": lambda: Case("command", f"the whole command, 2 epochs of 200 rows, QAT {qat}",
                                rows[:200], qat=qat, epochs=2, whole=True),
    }
    for name in args.case or [name for name in made if name != "command"]:
        yield made[name]()


def run(command, on_line, **environment):
    """Runs a command; returns (seconds, user + system seconds, peak MiB) and passes its lines on."""
    start = time.time()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             env={**os.environ, **environment})
    for line in child.stdout:
        on_line(line)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed; run it by hand: {' '.join(map(str, command))}")
    return start, time.time() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def ours(args, case, path):
    log = f"{args.work}/ours.jsonl"
    command = [args.needle, "pretrain" if case.full else "finetune", path,
               "--checkpoint", f"{args.work}/base.pkl", "--epochs", str(case.epochs),
               "--batch-size", str(case.batch), "--max-len", str(case.max_len),
               "--out", f"{args.work}/ours.pkl", "--log", log]
    if case.full:
        command += ["--tokenizer", f"{args.work}/tokenizer.model", "--lm-weight", "0"]
    else:
        command += ["--val-split", "0", "--qat-bits", case.qat, "--device", args.device]
    start, wall, cpu, peak = run(command, lambda line: None, PYTHONPATH=args.plugins)
    with open(log) as file:
        steps = [json.loads(line) for line in file if '"step"' in line]
    seconds = [s["seconds"] for s in steps]
    first = wall - sum(seconds[1:]) - statistics.median(seconds[1:])
    return {"seconds": seconds, "losses": [s["loss"] for s in steps], "wall": wall, "cpu": cpu,
            "peak": peak, "first": max(0.0, first)}


def upstream_command(path, base, out, batch, max_len, qat, epochs=1, full=False):
    """Trains with upstream; it prints a line "STEP time loss" after each step."""
    return [sys.executable, "-c", UPSTREAM, path, base, out, str(batch), str(max_len), qat, str(epochs),
            "full" if full else "lora"]


def theirs(args, case, path):
    seen = []

    def on_line(line):
        if line.startswith("STEP"):
            seen.append((float(line.split()[1]), float(line.split()[2])))

    command = upstream_command(path, f"{args.work}/base.pkl", f"{args.work}/theirs.pkl", case.batch,
                               case.max_len, case.qat, case.epochs, case.full)
    start, wall, cpu, peak = run(command, on_line)
    seconds = [b[0] - a[0] for a, b in zip(seen, seen[1:])]
    return {"seconds": [None] + seconds, "losses": [s[1] for s in seen], "wall": wall, "cpu": cpu,
            "peak": peak, "first": seen[0][0] - start - statistics.median(seconds)}


def main():
    parser = argparse.ArgumentParser()
    for name in ["work", "needle", "rows"]:
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--turns", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plugins", default="")
    parser.add_argument("--qat", default="auto")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    threads = os.cpu_count()
    print(f"{threads} threads, {args.steps} counted steps a turn; processor seconds are of a whole run, "
          "loading and compiling included")
    print("| case | program | s/step | each | examples/s | processor s a step and thread | before the "
          "first step, s | peak MB | largest difference of a loss | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for case in cases(args, args.steps + 1):
        path = f"{args.work}/{case.name}.jsonl"
        with open(path, "w") as file:
            for row in case.rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        mine, upstream = [], []
        shutil.rmtree(os.environ["NEEDLE_CACHE_DIR"], ignore_errors=True)  # programs compiled before
        for _ in range(args.turns if case.name == "mixed" else 1):
            # Ours takes a twentieth of the time, so what the machine does beside it counts more.
            mine.append(ours(args, case, path))
            upstream.append(theirs(args, case, path))
            if args.device == "cpu":
                mine.append(ours(args, case, path))
        if args.device != "cpu":
            again = ours(args, case, path)
            print(f"{case.name}: before the first step of a first start {mine[0]['first']:.1f} s, of one "
                  f"that finds its programs {again['first']:.1f} s", file=sys.stderr, flush=True)
        # Training of all parameters has a schedule of its own here: then the first losses count.
        compared = 1 if case.full else None
        apart = max(abs(a - b) / b for m in mine for u in upstream
                    for a, b in zip(m["losses"][:compared], u["losses"]))
        medians = []
        name = "needle.cpp" if args.device == "cpu" else f"needle.cpp, `--device {args.device}`"
        for program, runs in [(name, mine), ("upstream", upstream)]:
            each = ([r["wall"] / len(r["seconds"]) for r in runs] if case.whole else
                    [s for r in runs for s in r["seconds"][1:]])
            median = statistics.median(each)
            medians.append(median)
            cpu = statistics.median(r["cpu"] / len(r["seconds"]) / threads for r in runs)
            ratio = f"**{medians[1] / medians[0]:.1f}**" if len(medians) == 2 else ""
            print(f"| {case.what} | {program} | {median:.2f} | {', '.join(f'{s:.2f}' for s in each)} | "
                  f"{case.batch / median:.2f} | {cpu:.2f} | "
                  f"{statistics.median(r['first'] for r in runs):.1f} | "
                  f"{max(r['peak'] for r in runs):.0f} | "
                  f"{f'{apart:.1e}' if len(medians) == 2 else ''} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
