"""Ask the engine held-out questions and count what it gets right.

usage: evaluate.py CHECKPOINT [--k3run PROGRAM] [--cases N] [--jobs N] [--show]
       evaluate.py CHECKPOINT --overlap     only the last line: what cases and training samples have in common

Every case is one greedy k3run on a prompt whose operands, words, names and question forms no training sample has
(the overlap with the first training samples is counted and printed).  Right means: the answer is the expected one, to
the letter; of tool calls, names, arguments and types; JSON is counted twice, valid against the schema and right.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

import chatfmt
import data
import export
from tokenizer import Tokenizer
from train import LENGTH, tokens

LIMIT = 320  # tokens of an answer; the longest expected one has fewer


def cases(family, count, tokenizer):
    """The first held-out samples of the family."""
    seed, out = 10**6, []
    while len(out) < count:
        sample = data.sample(seed, "test", family)
        seed += 1
        if sample and len(tokens(sample, tokenizer)[0]) <= LENGTH:
            out.append(sample)
    return out


def ask(k3run, checkpoint, tokenizer, sample):
    """(reasoning, content, calls, ended as it should) of the engine."""
    prompt = chatfmt.encode(chatfmt.prompt(sample["request"]), tokenizer)
    command = [k3run, "--model", checkpoint, "--threads", "1", "--temperature", "0", "--output", "tokens",
               "--max-tokens", str(LIMIT), "--prompt-tokens", ",".join(map(str, prompt))]  # fmt: skip
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    ids = [int(i) for i in text.split(",")] if text else []
    found = chatfmt.read(ids, tokenizer, sample["request"].get("thinking", True))
    return *found[:3], found[3] and len(ids) < LIMIT


def valid(value, schema):
    """Does the value fit the schema, as far as our schemas go?"""
    kind = schema.get("type")
    if "enum" in schema and value not in schema["enum"]:
        return False
    if kind == "object":
        properties = schema.get("properties", {})
        return (
            isinstance(value, dict)
            and all(k in value for k in schema.get("required", ()))
            and all(k in properties and valid(v, properties[k]) for k, v in value.items())
        )
    if kind == "array":
        return isinstance(value, list) and all(valid(v, schema["items"]) for v in value)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and (kind == "number" or isinstance(value, int))


def schema_valid(request, content):
    try:
        value = json.loads(content)
    except ValueError:
        return False
    form = request["response_format"]
    return isinstance(value, dict) if form["type"] == "json_object" else valid(value, form["json_schema"]["schema"])


def loss_of(k3run, checkpoint, tokenizer, samples):
    """Sum over the answers' tokens, by the engine's logits, and the number of tokens."""
    loss = count = 0
    with tempfile.TemporaryDirectory() as tmp:
        dump = os.path.join(tmp, "logits")
        for sample in samples:
            ids, begin = tokens(sample, tokenizer)
            command = [k3run, "--model", checkpoint, "--threads", "1", "--prompt-tokens", ",".join(map(str, ids)), "--dump-logits", dump]
            subprocess.run(command, check=True, capture_output=True)
            logits = dict(export.read_safetensors(dump))["logits"].astype(np.float64)[begin - 1 : -1]
            top = logits.max(-1)
            loss += (top + np.log(np.exp(logits - top[:, None]).sum(-1)) - logits[np.arange(len(ids) - begin), ids[begin:]]).sum()
            count += len(ids) - begin
    return np.array([loss, count])


def drawn(sample):
    """What a sample drew, and the whole of its messages."""
    return set(sample["keys"]) | {("talk", json.dumps(sample["request"]["messages"], sort_keys=True))}


def overlap(samples, tokenizer, count):
    """What the cases drew that one of the first training samples drew too, by kind."""
    data.use_pieces(tokenizer)
    seen = set().union(*(drawn(s) for s in (data.sample(seed, "train") for seed in range(count)) if s))
    data.PIECES.clear()
    common = collections.Counter({kind: 0 for kind in sorted({kind for kind, _ in seen})})
    for sample in samples:
        common.update(kind for kind, key in drawn(sample) if (kind, key) in seen)
    return dict(common)


def tell_overlap(asked, tokenizer, count):
    print(f"drawn in both {len(asked)} cases and {count} training samples: {overlap(asked, tokenizer, count)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--k3run", default="k3run")
    parser.add_argument("--cases", type=int, default=250, help="a family")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--training", type=int, default=100000, help="training samples to compare with")
    parser.add_argument("--perplexity", type=int, default=50, metavar="N", help="of the first N cases a family")
    parser.add_argument("--overlap", action="store_true", help="count that and do no more")
    parser.add_argument("--show", action="store_true", help="print the wrong answers")
    parser.add_argument("--family", choices=list(data.FAMILIES))
    o = parser.parse_args()
    tokenizer = Tokenizer(o.checkpoint)
    families = [o.family] if o.family else [f for f in data.FAMILIES if f != "chat"]
    asked = [s for f in families for s in cases(f, o.cases, tokenizer)]
    if o.overlap:
        tell_overlap(asked, tokenizer, o.training)
        return
    pool = concurrent.futures.ThreadPoolExecutor(o.jobs)
    results = list(pool.map(lambda s: ask(o.k3run, o.checkpoint, tokenizer, s), asked))
    total, right, by_effort, stopped = (collections.Counter() for _ in range(4))
    fits = [0, 0]
    for sample, (_, content, calls, ended) in zip(asked, results):
        family, request, answer = sample["family"], sample["request"], sample["answer"]
        good = content == data.joined(answer["content"]) and calls == answer.get("calls", [])
        effort = "off" if request.get("thinking") is False else request.get("thinking_effort", "unsaid")
        total[family] += 1
        right[family] += good
        by_effort[family, effort, 1] += 1
        by_effort[family, effort, 0] += good
        stopped[family] += ended
        if family == "json":
            fits[0] += schema_valid(request, content)
            fits[1] += 1
        if not good and o.show:
            print(json.dumps([family, effort, request["messages"][-1]["content"], answer, content, calls], ensure_ascii=False))
    for f in families:
        efforts = "  ".join(f"{e} {by_effort[f, e, 0]}/{by_effort[f, e, 1]}" for e in ("off", "unsaid", "low", "medium", "high", "max") if by_effort[f, e, 1])
        print(f"{f:12s} right {right[f]}/{total[f]} = {100 * right[f] / total[f]:.1f} %   ({efforts})")
    if fits[1]:
        print(f"json         valid against the schema {fits[0]}/{fits[1]} = {100 * fits[0] / fits[1]:.1f} %")
    print(f"ended with a stop id behind a whole message {sum(stopped.values())}/{len(asked)} = {100 * sum(stopped.values()) / len(asked):.2f} %")
    of_family = lambda f: loss_of(o.k3run, o.checkpoint, tokenizer, [s for s in asked if s["family"] == f][: o.perplexity])
    losses = list(pool.map(of_family, families))
    for f, (loss, count) in [*zip(families, losses), ("all", sum(losses))]:
        print(f"{f:12s} perplexity of the expected answers {math.exp(loss / count):.5f} ({int(count)} tokens)")
    tell_overlap(asked, tokenizer, o.training)


if __name__ == "__main__":
    sys.exit(main())
