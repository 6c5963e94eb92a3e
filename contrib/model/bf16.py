"""What does MXFP4 cost?  Writes the checkpoint with its experts as they were before rounding, in BF16, for evaluate.py.

usage: bf16.py CHECKPOINT EXPERTS.pt OUT     train.py leaves experts-bf16.pt beside the checkpoint
"""
import json
import os
import shutil
import sys

import torch

import export
import k3torch


def main(checkpoint, experts, out):
    model = export.read(checkpoint)
    with open(os.path.join(checkpoint, "config.json")) as f:
        config = json.load(f)
    weights = iter(torch.load(experts, weights_only=True))
    same = total = 0
    with torch.no_grad():
        for moe in (layer.block_sparse_moe for layer in model.model.layers if layer.is_moe):
            for w in (moe.w1, moe.w2, moe.w3):
                before = next(weights)
                same += (k3torch.mxfp4_round(before.float()) == w).sum().item()
                total += w.numel()
                w.copy_(before)
    print(f"{100 * same / total:.2f} % of the weights, rounded, are those of the checkpoint")
    assert same > 0.95 * total, "these experts are not this checkpoint's"
    del config["text_config"]["quantization_config"]
    export.write(model, config, out)
    for name in ("tiktoken.model", "tokenizer_config.json"):
        shutil.copy(os.path.join(checkpoint, name), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
