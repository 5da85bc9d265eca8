"""Lets needle-rs and this program answer the first queries of a data file with one archive, without a
grammar, and compares the tokens that they write."""
import json
import subprocess
import sys
import tempfile

import needle_rs

needle, archive, data, count = sys.argv[1:5]
TOKENS = 24
engine = needle_rs.V2Engine.load(archive)
with open(data, encoding="utf-8") as lines:
    rows = [json.loads(line) for line in list(lines)[: int(count)]]
same = written = 0
for row in rows:
    tools = json.loads(row["tools"]) if isinstance(row["tools"], str) else row["tools"]
    text = json.dumps(tools, separators=(",", ":"), ensure_ascii=False)
    out = engine.generate(row["query"], text, TOKENS, system=row.get("system"))
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        command = [needle, "run", archive, "--tools", file.name, "--query", row["query"], "--no-grammar",
                   "--json", "--max-len", str(TOKENS)]
        if row.get("system"):
            command += ["--system", row["system"]]
        ours = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["tokens"]
    # Its list may leave out the token that ends the answer.
    theirs = out["token_ids"]
    equal = theirs == ours[: len(theirs)] and len(ours) - len(theirs) <= 1
    same += equal
    written += len(theirs)
    print(repr(row["query"]), "the same" if equal else f"{theirs} and {ours}", repr(out["text"][:60]))
print(f"the same tokens in {same} of {len(rows)} answers, {written} tokens")
# Two levels of a code, or two tokens, may be equally good to a last bit: then the answers part.
assert written > 4 * len(rows) and same >= 0.8 * len(rows)
