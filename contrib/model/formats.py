"""What do the MXFP4 experts cost?  The same held-out samples with the experts as shipped and as they were in training
before rounding (BF16), both by the PyTorch model, which agrees with the engine.

usage: formats.py CHECKPOINT EXPERTS.pt [SAMPLES]     train.py writes experts-bf16.pt beside the checkpoint

A sample counts as right when every token of its answer is the likeliest one after those before it.
"""
import math
import sys

import torch
import torch.nn.functional as F

import data
import export
from evaluate import cases
from tokenizer import Tokenizer
from train import tokens


@torch.no_grad()
def score(model, samples, tokenizer):
    right = count = loss = 0
    for sample in samples:
        ids, begin = tokens(sample, tokenizer)
        padded = torch.tensor([ids + [0] * (-len(ids) % 64)])
        logits, target = model(padded)[0][0, begin - 1 : len(ids) - 1], padded[0, begin : len(ids)]
        right += bool((logits.argmax(-1) == target).all())
        loss += F.cross_entropy(logits, target, reduction="sum").item()
        count += len(target)
    return right, math.exp(loss / count)


def main(checkpoint, experts, count="100"):
    tokenizer = Tokenizer(checkpoint)
    shipped, before = export.read(checkpoint), export.read(checkpoint)
    weights = iter(torch.load(experts, weights_only=True))
    with torch.no_grad():
        for layer in before.model.layers:
            if layer.is_moe:
                for name in ("w1", "w2", "w3"):
                    getattr(layer.block_sparse_moe, name).copy_(next(weights))
    for family in data.FAMILIES:
        samples = cases(family, int(count), tokenizer)
        for name, model in (("MXFP4", shipped), ("BF16", before)):
            right, perplexity = score(model, samples, tokenizer)
            print(f"{family:12s} {name:6s} right {right}/{count}  perplexity {perplexity:.4f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
