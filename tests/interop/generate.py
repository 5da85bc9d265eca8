"""Loads an archive in needle-rs and lets it answer the first queries of a data file."""
import json
import sys

import needle_rs

archive, data = sys.argv[1:3]
engine = needle_rs.V2Engine.load(archive)
answered = 0
with open(data, encoding="utf-8") as lines:
    for line in list(lines)[:3]:
        row = json.loads(line)
        tools = row.get("tools", [])
        text = tools if isinstance(tools, str) else json.dumps(tools, separators=(",", ":"), ensure_ascii=False)
        out = engine.generate(row["query"], text, 24)
        print(repr(row["query"]), "->", repr(out["text"])[:200])
        answered += bool(out["token_ids"])
assert answered == 3, f"{answered} of 3 queries gave text"
