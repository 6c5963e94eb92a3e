"""Do the engine and the PyTorch model compute the same logits from one checkpoint?

usage: agree.py CHECKPOINT [K3RUN]          both on random prompts; both forms of KDA
       agree.py CHECKPOINT FILE.safetensors against recorded vectors (short and long)
"""
import os
import random
import subprocess
import sys
import tempfile

import torch

import export


def compute(model, ids, recurrent):
    """Logits of one prompt; the chunked form pads it to whole chunks."""
    padded = ids + [0] * (-len(ids) % 64)
    with torch.no_grad():
        return model(torch.tensor([padded]), recurrent=recurrent)[0][0, : len(ids)]


def difference(got, wanted):
    return float((got - wanted).norm() / wanted.norm())


def main(checkpoint, other="k3run"):
    model = export.read(checkpoint)
    worst = 0.0
    if other.endswith(".safetensors"):
        v = {k: torch.tensor(a) for k, a in export.read_safetensors(other)}
        for recurrent in (False, True):
            short = compute(model, v["short.tokens"].tolist(), recurrent)
            long = compute(model, v["long.tokens"].tolist(), recurrent)[v["long.last_positions"].long()]
            worst = max(worst, difference(short, v["short.logits"]), difference(long, v["long.last_logits"]))
    else:
        draw = random.Random(1)
        with tempfile.TemporaryDirectory() as tmp:
            for length in (1, 17, 64, 150):
                ids = [draw.randrange(model.c["vocab_size"] - 256) for _ in range(length)]
                dump = os.path.join(tmp, "logits")
                command = [other, "--model", checkpoint, "--prompt-tokens", ",".join(map(str, ids)), "--dump-logits", dump]
                subprocess.run(command, check=True)
                wanted = torch.tensor(dict(export.read_safetensors(dump))["logits"])
                worst = max([worst] + [difference(compute(model, ids, r), wanted) for r in (False, True)])
    print(f"{checkpoint}: relative difference at most {worst:.2e}")
    return 0 if worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
