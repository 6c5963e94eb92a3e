"""Do the Python parts agree with the programs and with themselves?

usage: selftest.py CHECKPOINT [K3RUN [SAMPLES]]
"""
import json
import subprocess
import sys

import torch

import chatfmt
import data
import export
import k3torch
from tokenizer import Tokenizer


def prompts_agree(checkpoint, k3run, samples):
    """chatfmt and tokenizer give the ids of k3run --render, for prompts and for whole conversations."""
    tokenizer = Tokenizer(checkpoint)
    for seed in range(samples):
        sample = data.sample(seed, "test")
        if not sample:
            continue
        request = sample["request"]
        done = dict(request, messages=request["messages"] + [{"role": "assistant", **sample["answer"]}])
        done["messages"][-1]["content"] = data.joined(done["messages"][-1]["content"])
        for r in (request, done):
            ids = chatfmt.encode(chatfmt.prompt(r), tokenizer)
            text = json.dumps(chatfmt.openai(r), ensure_ascii=False)
            command = [k3run, "--model", checkpoint, "--render", "-", "--output", "tokens"]
            wanted = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.strip()
            assert ",".join(map(str, ids)) == wanted, text


def texts_agree(checkpoint, k3run):
    tokenizer = Tokenizer(checkpoint)
    for text in ("Don't  stop\r\n\r\n 12345 a1b2", "I'LL 再见，世界 naïve Ünïcode ÉCOLE", "\t x  y   \n", "[EOS] <|open|> 🎉 1½", "get_weather({'a': 1.5})"):
        wanted = subprocess.run([k3run, "--model", checkpoint, "--tokenize"], input=text, capture_output=True, text=True, check=True).stdout
        assert ",".join(map(str, tokenizer.encode(text))) == wanted.strip(), text


def samples_in_a_row_are_apart(model):
    """Two samples in one row give the logits that each gives alone, and so do both forms of KDA."""
    draw = torch.Generator().manual_seed(2)
    a, b = (torch.randint(0, 1000, (n,), generator=draw) for n in (45, 83))
    with torch.no_grad():
        row, segment = torch.cat([a, b])[None], torch.tensor([0] * 45 + [1] * 83)[None]
        together = model(row, segment)[0][0]
        for part, got in ((a, together[:45]), (b, together[45:])):
            alone = model(part[None], recurrent=True)[0][0]
            assert (got - alone).norm() / alone.norm() < 1e-5


def mxfp4_is_what_training_saw():
    w = torch.randn(64, 128, generator=torch.Generator().manual_seed(3)) * torch.logspace(-6, 6, 64).unsqueeze(1)
    rounded = k3torch.mxfp4_round(w)
    assert (torch.from_numpy(export.unpack(*export.pack(w))) == rounded).all()
    assert (k3torch.mxfp4_round(rounded) == rounded).all()
    blocks = [x.unflatten(-1, (-1, 32)) for x in (w, rounded)]
    # the widest gap, from 4 to 6, leaves an error of 1 where the largest value is 5
    assert ((blocks[0] - blocks[1]).abs().amax(-1) <= blocks[0].abs().amax(-1) / 4.99).all()


def splits_are_apart():
    keys = [{k for n in range(1000) if (s := data.sample(n, split)) for k in s["keys"]} for split in ("train", "test")]
    assert not keys[0] & keys[1]


def main(checkpoint, k3run="k3run", samples="40"):
    mxfp4_is_what_training_saw()
    splits_are_apart()
    texts_agree(checkpoint, k3run)
    prompts_agree(checkpoint, k3run, int(samples))
    samples_in_a_row_are_apart(export.read(checkpoint))
    print("all agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
