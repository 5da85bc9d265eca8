"""The two parts of device_check.sh. Every command's outcome goes into one JSON document."""

import argparse
import glob
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from train_vs_upstream import upstream_command  # noqa: E402

BATCH = 16
PIECES = {"base": 8192, "tiny": 2048}  # of the vocabulary
APART = 1e-3  # of the losses of two trainings; rounding alone is under 1e-4


class DeviceMemory:
    """The most memory of the GPU in use, in MiB, while the block runs; None without nvidia-smi."""

    def __enter__(self):
        self.most, self.done = self.used(), False
        self.thread = threading.Thread(target=self.watch, daemon=True)
        if self.most is not None:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.done = True

    def watch(self):
        while not self.done:
            self.most = max(self.most, self.used() or 0)
            time.sleep(0.3)

    @staticmethod
    def used():
        try:
            said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                  capture_output=True, text=True, timeout=10).stdout
            return max(int(line) for line in said.split())
        except (OSError, ValueError, subprocess.SubprocessError):
            return None


def padded_tokenizer(pieces):
    """The bundled tokenizer with as many pieces as the model has: those added are never used."""
    with open("data/bundled/tokenizer.model", "rb") as file:
        model = file.read()
    normal = 1
    for i in range(2048, pieces):
        name = f"\ue000unused{i}".encode()
        piece = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", -1e6) + bytes([0x18, normal])
        model += b"\x0a" + bytes([len(piece)]) + piece  # one more of a repeated field
    return model


class Check:
    def __init__(self, args):
        self.args = args
        self.end = time.time() + args.limit - 10  # the rest is for ending and writing
        self.needle = os.path.abspath(f"{args.folder}/needle")
        self.work = os.path.abspath(f"{args.folder}/work")
        shutil.rmtree(self.work, ignore_errors=True)  # programs that are compiled already, too
        os.makedirs(self.work)
        os.makedirs(args.out, exist_ok=True)
        self.document = {"part": args.part, "device": args.device, "preset": args.preset, "failed": [],
                         "off": [], "runs": {}}
        self.environment = dict(
            os.environ, NEEDLE_CACHE_DIR=f"{self.work}/cache", XLA_PYTHON_CLIENT_PREALLOCATE="false",
            DO_NOT_TRACK="1", NEEDLE_TELEMETRY="0", HF_HUB_OFFLINE="1")

    def run(self, name, command, share=1.0, **environment):
        """Runs a command in at most a share of the time of a part, and in what is left of it; returns its
        standard output, or None."""
        limit = min(share * self.args.limit, self.end - time.time())
        record = self.document["runs"][name] = {}
        if limit < 2:
            self.failed(name, "no time was left for it")
            return None
        start = time.time()
        with DeviceMemory() as memory, open(f"{self.work}/{name}.err", "w") as err:
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=err, text=True, timeout=limit,
                                      env={**self.environment, **environment})
                status, said = done.returncode, done.stdout
            except subprocess.TimeoutExpired as e:
                status, said = "took too long", (e.stdout or b"").decode(errors="replace")
        record.update(seconds=round(time.time() - start, 2), status=status, device_memory_mib=memory.most)
        if status != 0:
            with open(f"{self.work}/{name}.err") as err:
                record["errors"] = err.read()[-3000:]
            self.failed(name, f"{status}")
            if status != 3:  # a check that did not hold still says what it found
                return None
        return said

    def failed(self, name, why):
        self.document["failed"].append(f"{name}: {why}")

    def rows(self, steps):
        path = f"{self.work}/rows.jsonl"
        with open("examples/home/train.jsonl") as whole, open(path, "w") as file:
            file.writelines(line for _, line in zip(range(BATCH * steps), whole))
        return path

    def base(self):
        self.tokenizer = padded_tokenizer(PIECES[self.args.preset])
        with open(f"{self.work}/tokenizer.model", "wb") as file:
            file.write(self.tokenizer)
        self.run("init", [self.needle, "init", "--preset", self.args.preset, "--seed", "0", "--tokenizer",
                          f"{self.work}/tokenizer.model", "--out", f"{self.work}/base.pkl"])

    def train(self, name, device, steps):
        """Trains with us; the record of the run then holds losses and times."""
        log = f"{self.work}/{name}.jsonl"
        self.run(name, [self.needle, "finetune", self.rows(steps), "--checkpoint", f"{self.work}/base.pkl",
                        "--epochs", "1", "--batch-size", str(BATCH), "--val-split", "0", "--qat-bits", "none", "--device", device,
                        "--out", f"{self.work}/{name}.pkl", "--log", log])
        try:
            with open(log) as file:
                done = [json.loads(line) for line in file if '"step"' in line]
        except OSError:
            done = []
        self.add_steps(name, [s["loss"] for s in done], [s["seconds"] for s in done])

    def train_upstream(self, name, steps):
        package = f"{self.work}/upstream"
        with zipfile.ZipFile(glob.glob(f"{self.args.folder}/cactus_needle-*.whl")[0]) as wheel:
            wheel.extractall(package)
        with open(f"{package}/needle/model/tokenizer.model", "wb") as file:
            file.write(self.tokenizer)
        platform = "cpu" if self.args.device == "xla-cpu" else self.args.device
        said = self.run(
            name, upstream_command(self.rows(steps), f"{self.work}/base.pkl", f"{self.work}/{name}.pkl",
                                   BATCH, 1024, "none"),
            PYTHONPATH=package + os.pathsep + os.environ.get("PYTHONPATH", ""), JAX_PLATFORMS=platform)
        seen = [line.split() for line in (said or "").splitlines() if line.startswith("STEP")]
        times = [float(s[1]) for s in seen]
        self.add_steps(name, [float(s[2]) for s in seen],
                       [None] + [round(b - a, 4) for a, b in zip(times, times[1:])])

    def add_steps(self, name, losses, seconds):
        record = self.document["runs"][name]
        record.update(losses=losses, each=seconds)
        if len(losses) > 1:
            step = statistics.median(seconds[1:])
            record.update(seconds_a_step=step,
                          seconds_beside_steps=round(record["seconds"] - step * len(losses), 2))
            if seconds[0] is not None:
                record["first_step_beside_others"] = round(seconds[0] - step, 2)

    def compare(self, first, second, steps):
        """Losses step by step, and ratios second / first of times."""
        a, b = self.document["runs"][first], self.document["runs"][second]
        if len(a["losses"]) != steps or len(b["losses"]) != steps:
            return
        apart = max(abs(x - y) / abs(y) for x, y in zip(a["losses"], b["losses"]))
        self.document["compared"] = {
            "of": f"{second} / {first}", "largest_difference_of_a_loss": apart,
            "step": b["seconds_a_step"] / a["seconds_a_step"], "command": b["seconds"] / a["seconds"]}
        if not apart <= APART:
            self.document["off"].append(f"losses of {first} and {second} are {apart:.1e} apart")

    def document_of(self, name, command):
        said = self.run(name, command, share=0.4)
        try:
            self.document[name] = json.loads(said)
        except (TypeError, ValueError):
            self.failed(name, "wrote no document")

    def part1(self):
        device, steps = self.args.device, self.args.steps
        self.document_of("devices", [self.needle, "devices", "--device", device, "--json"])
        self.document_of("doctor", [self.needle, "doctor", "--device", device, "--json"])
        if not self.document.get("doctor", {}).get("success"):
            self.document["off"].append("doctor")
        self.base()
        self.train("ours", device, steps)
        self.train("ours_again", device, steps)  # finds its programs on the disk
        self.train("cpu", "cpu", steps)
        self.compare("ours", "cpu", steps)

    def part2(self):
        steps = max(2, self.args.steps // 5)
        self.base()
        self.train("ours", self.args.device, steps)
        self.train_upstream("upstream", steps)
        self.compare("ours", "upstream", steps)

    def finish(self):
        path = f"{self.args.out}/part{self.args.part}.json"
        with open(path, "w") as file:
            json.dump(self.document, file, indent=1)
        brief = {k: v for k, v in self.document.items() if k not in ("devices", "doctor", "runs")}
        brief["runs"] = {name: {k: v for k, v in run.items() if k not in ("losses", "each", "errors")}
                         for name, run in self.document["runs"].items()}
        print(json.dumps(brief, indent=1))
        print(path)
        return 1 if self.document["failed"] else 3 if self.document["off"] else 0


def main():
    parser = argparse.ArgumentParser()
    for name, kind in [("part", int), ("folder", str), ("out", str), ("device", str), ("steps", int),
                       ("preset", str), ("limit", float)]:
        parser.add_argument("--" + name, type=kind, required=True)
    check = Check(parser.parse_args())
    try:
        check.part1() if check.args.part == 1 else check.part2()
    finally:
        status = check.finish()
    sys.exit(status)


if __name__ == "__main__":
    main()
