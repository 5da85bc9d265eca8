"""Seconds a LoRA step takes against rows a batch, tokens a row, tools a request and threads.

Called by scaling.sh. Runs `needle finetune` on the full-size base for each point (one step to warm up,
then --steps counted ones), writes the figures as JSON and a chart of them.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt


def parsed(value):
    return json.loads(value) if isinstance(value, str) else value


def with_answer(row, tools):
    return {"query": row["query"], "tools": tools,
            "answers": parsed(row.get("answers", row.get("function_calls")))}


def noise(rng, words):
    return " ".join("".join(rng.choices("abcdefgh", k=5)) for _ in range(words))


class Bench:
    def __init__(self, args):
        self.args = args
        with open(args.rows) as file:
            self.rows = [json.loads(line) for line in file]
        self.tools = {}
        for row in self.rows:
            for tool in parsed(row["tools"]):
                self.tools.setdefault(tool["name"], tool)

    def step(self, rows, batch, threads=0, qat="auto"):
        """Median seconds of the counted steps, and the rows of the network they computed."""
        path, log = f"{self.args.work}/scaling.jsonl", f"{self.args.work}/scaling.log"
        count = batch * (self.args.steps + 1)
        with open(path, "w") as file:
            for i in range(count):
                file.write(json.dumps(rows[i % len(rows)], ensure_ascii=False) + "\n")
        command = [self.args.needle, "finetune", path, "--checkpoint", f"{self.args.work}/base.pkl",
                   "--epochs", "1", "--batch-size", str(batch), "--max-len", "2048", "--val-split", "0",
                   "--qat-bits", qat, "--threads", str(threads), "--out", f"{self.args.work}/scaling.pkl",
                   "--log", log]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        with open(log) as file:
            steps = [json.loads(line) for line in file if '"step"' in line][1:]
        return (statistics.median(s["seconds"] for s in steps),
                statistics.median(s["tokens_computed"] for s in steps))

    def apart(self, words):
        """Rows whose prompts differ from the first word on: nothing can be shared."""
        rng = random.Random(3)
        for row in self.rows:
            called = {c["name"] for c in parsed(row.get("answers", row.get("function_calls")))}
            tools = [t for t in parsed(row["tools"]) if t["name"] in called][:1]
            if tools and len(called) == 1:
                yield dict(with_answer(row, tools), system=noise(rng, words))

    def with_tools(self, count):
        """Rows that all declare the same `count` tools and call one of them, or none."""
        names = list(self.tools)[:count]
        for row in self.rows:
            called = {c["name"] for c in parsed(row.get("answers", row.get("function_calls")))}
            if called <= set(names):
                yield with_answer(row, [self.tools[name] for name in names])

    def series(self):
        yield "rows a batch", "`train.jsonl` as it is", [
            (batch, *self.step(self.rows, batch)) for batch in [2, 4, 8, 16, 32]]
        yield "tokens a row", "8 rows that share nothing, QAT none", [
            (round(tokens / 8), seconds, tokens) for seconds, tokens in
            [self.step(list(self.apart(words)), 8, qat="none") for words in [0, 20, 60, 140, 220]]]
        yield "tools a request", "16 rows, one tool set", [
            (count, *self.step(list(self.with_tools(count)), 16)) for count in [1, 3, 6, 9, 12]]
        yield "threads", "`train.jsonl` as it is, batch 16", [
            (threads, *self.step(self.rows, 16, threads))
            for threads in range(1, (os.cpu_count() or 1) + 1)]


def chart(series, path):
    matplotlib.rcParams.update({"svg.hashsalt": "needle", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(2, 2, figsize=(9, 6))
    for axis, (name, what, points) in zip(axes.flat, series):
        axis.plot([p[0] for p in points], [p[1] for p in points], "o-", color="#1f6f8b")
        for x, seconds, tokens in points:
            axis.annotate(f"{tokens / seconds:.0f}/s", (x, seconds), textcoords="offset points",
                          xytext=(4, -11), fontsize=7, color="#666666")
        axis.set(title=what.replace("`", ""), xlabel=name, ylabel="s a step", ylim=(0, None))
        axis.grid(alpha=0.3)
    figure.suptitle("One LoRA step of the 45 M model; grey: rows of the network a second")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser()
    for name in ["work", "needle", "rows", "chart"]:
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    series = list(Bench(args).series())
    for name, what, points in series:
        print(f"\n{what}\n\n| {name} | s/step | rows of the network | a second |\n|---|---|---|---|")
        for x, seconds, tokens in points:
            print(f"| {x} | {seconds:.2f} | {tokens:.0f} | {tokens / seconds:.0f} |")
    chart(series, args.chart)


if __name__ == "__main__":
    main()
