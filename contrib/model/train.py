"""Train the small K3 or its draft on one GPU.

usage: train.py --model main|draft --tokenizer DIR --out DIR --steps N [--state FILE] [--seconds N]

The samples are made while training, by worker processes, from fixed seeds.  With --seconds the run stops in time and
--state lets the next one go on where it stopped.  The checkpoint in --out is written at intervals and at the end.
"""
import argparse
import collections
import json
import math
import multiprocessing as mp
import os
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F

import chatfmt
import data
import export
import k3torch
from tokenizer import SLOTS, Tokenizer

LENGTH = 512  # tokens of a row
OTHERS = 0.05  # weight of tokens that the model does not have to write
WARMUP, DECAY = 100, 0.45  # steps; share of the steps in which the rate falls to zero
BALANCE = 1e-3  # step of the router's correction bias


def config(size, base):
    """A K3 of the real head geometry; 4 heads, so that 1, 2 or 4 ranks share them evenly."""
    main = size == "main"
    layers = 9 if main else 4
    mla = [4, 8, 9] if main else [4]
    tokens = {"bos_token_id": base, "eos_token_id": base + 2, "pad_token_id": base + 255}
    text = {
        "model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"], "dtype": "bfloat16",
        "vocab_size": base + SLOTS, "hidden_size": 256 if main else 128, "intermediate_size": 512 if main else 256,
        "num_hidden_layers": layers, "num_attention_heads": 4 if main else 2, "num_key_value_heads": 4 if main else 2,
        "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "rms_norm_eps": 1e-05,
        "max_position_embeddings": 1048576, "tie_word_embeddings": False, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "num_experts": 32 if main else 16, "num_experts_per_token": 4 if main else 2, "num_shared_experts": 2,
        "moe_intermediate_size": 128 if main else 64, "routed_expert_hidden_size": 64, "latent_moe_use_norm": True,
        "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 1.0,
        "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
        "q_lora_rank": 128 if main else 64, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "mla_use_nope": True, "mla_use_output_gate": True, "attn_res_block_size": 3 if main else 2, "num_nextn_predict_layers": 0,
        "linear_attn_config": {
            "num_heads": 4 if main else 2, "head_dim": 128, "short_conv_kernel_size": 4, "use_full_rank_gate": True,
            "gate_lower_bound": -5.0, "full_attn_layers": mla, "kda_layers": [i for i in range(1, layers + 1) if i not in mla],
        },
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "quantization_status": "compressed",
            "kv_cache_scheme": None, "global_compression_ratio": None,
            "config_groups": {"group_0": {
                "targets": ["Linear"], "format": "mxfp4-pack-quantized", "input_activations": None, "output_activations": None,
                "weights": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
                            "dynamic": False, "actorder": None, "block_structure": None, "observer": "minmax",
                            "observer_kwargs": {}, "scale_dtype": "torch.uint8", "zp_dtype": None}}},
            "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
                       "re:.*vision_tower.*", "re:.*mm_projector.*"],
        },
        **tokens,
    }  # fmt: skip
    return {
        "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16", **tokens,
        "ignore_index": -100, "media_placeholder_token_id": base + 21, "tie_word_embeddings": False, "text_config": text,
    }  # fmt: skip


# --- samples as rows of tokens ---------------------------------------------------------------------------------------


def tokens(sample, tokenizer):
    """ids of prompt and answer, and where the answer begins."""
    prompt = chatfmt.encode(chatfmt.prompt(sample["request"]), tokenizer)
    answer = chatfmt.encode(chatfmt.answer(sample["answer"], sample["request"].get("thinking", True)), tokenizer)
    return prompt + answer, len(prompt)


def rows(first, step, directory):
    """Endless rows (ids, segment, weight of predicting each position's successor), samples packed whole."""
    tokenizer = Tokenizer(directory)
    data.use_pieces(tokenizer)
    seed, pool = first, []
    while True:
        ids, segment, weight = (np.zeros(LENGTH, t) for t in (np.int16, np.int16, np.float16))
        at, number = 0, 0
        while True:
            while len(pool) < 32:
                sample = data.sample(seed, "train")
                seed += step
                if sample:
                    made, begin = tokens(sample, tokenizer)
                    if len(made) <= LENGTH:
                        pool.append((made, begin))
            fitting = [i for i, (made, _) in enumerate(pool) if len(made) <= LENGTH - at]
            if not fitting:
                break
            made, begin = pool.pop(fitting[0])
            end = at + len(made)
            ids[at:end], segment[at:end] = made, number
            weight[at : end - 1] = OTHERS
            weight[at + begin - 1 : end - 1] = 1.0
            at, number = end, number + 1
        segment[at:] = number
        yield ids, segment, weight


def work(queue, first, step, directory, count):
    """Put batches of `count` rows."""
    source = rows(first, step, directory)
    while True:
        batch = [next(source) for _ in range(count)]
        queue.put(tuple(np.stack(x) for x in zip(*batch)))


def held_out(directory, count):
    """Batches of held-out samples by family, one a row: ids, weight (1 on the answer)."""
    tokenizer = Tokenizer(directory)
    for family in data.FAMILIES:
        ids, weight, seed = np.zeros((count, LENGTH), np.int64), np.zeros((count, LENGTH), bool), 0
        for row in range(count):
            while True:
                sample = data.sample(seed, "test", family)
                seed += 1
                made, begin = tokens(sample, tokenizer) if sample else ([0] * (LENGTH + 1), 0)
                if len(made) <= LENGTH:
                    break
            ids[row, : len(made)] = made
            weight[row, begin - 1 : len(made) - 1] = True
        yield family, torch.from_numpy(ids), torch.from_numpy(weight)


# --- optimiser -------------------------------------------------------------------------------------------------------


def orthogonal(g):
    """Nearest matrices with equal singular values, by Newton-Schulz in BF16 (Muon); [n, rows, columns]."""
    x = g.bfloat16()
    if g.shape[-2] > g.shape[-1]:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if g.shape[-2] > g.shape[-1] else x


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal, with the size of an Adam step; matrices of one shape go together."""

    def __init__(self, params, lr, momentum=0.95, decay=0.1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = collections.defaultdict(list)
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                m = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                shapes[p.shape[-2:]].append((p, p.grad.lerp(m, group["momentum"])))
            for shape, members in shapes.items():
                update = orthogonal(torch.cat([u.reshape(-1, *shape) for _, u in members]))
                update = update * (0.2 * max(shape) ** 0.5 * group["lr"])
                for (p, _), u in zip(members, update.split([p.numel() // math.prod(shape) for p, _ in members])):
                    p.mul_(1 - group["lr"] * group["decay"]).sub_(u.reshape(p.shape))


def is_matrix(name, p):
    small = ("embed_tokens", "lm_head", "conv1d", "_res_proj", "b_proj", "block_sparse_moe.gate.")
    return p.dim() >= 2 and not any(s in name for s in small)


# --- training --------------------------------------------------------------------------------------------------------


def loss_of(model, ids, segment, weight):
    logits, loads = model(ids, segment)
    losses = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none")
    weight = weight[:, :-1].flatten()
    answer = (weight == 1).float()
    return (losses * weight).sum() / weight.sum(), (losses.detach() * answer).sum() / answer.sum(), loads


def exact(model, batches, device):
    """Share of held-out samples of which every token of the answer is the likeliest: what greedy decoding gets right.
    Gradients stay on, so that the compiled code of training serves here too."""
    shares = {}
    for family, ids, weight in batches:
        right = []
        for i, w in zip(ids.split(64), weight.split(64)):
            i, w = i.to(device), w.to(device)
            best = model(i, torch.zeros_like(i))[0].detach().argmax(-1)
            right.append(((best[:, :-1] == i[:, 1:]) | ~w[:, :-1]).all(-1))
        shares[family] = torch.cat(right).float().mean().item()
    return shares


def save(model, c, tokenizer, out):
    export.write(model, c, out)
    for name in ("tiktoken.model", "tokenizer_config.json"):
        shutil.copy(os.path.join(tokenizer, name), out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["main", "draft"], required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, default=64, help="rows of 512 tokens a step")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--cooldown", type=float, default=1.0, help="seconds before that end in which the rate falls to zero")
    parser.add_argument("--state")
    parser.add_argument("--plain", action="store_true", help="without torch.compile")
    parser.add_argument("--test", type=int, default=128, help="held-out samples a family")
    parser.add_argument("--every", type=int, default=1000, help="steps between looks at them")
    o = parser.parse_args()
    began = time.time()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    c = config(o.model, Tokenizer(o.tokenizer).base)
    model = k3torch.K3(c)
    model.start(torch.Generator().manual_seed(1))
    model.to(device)
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    muon = Muon([p for n, p in named if is_matrix(n, p)], o.lr)
    adam = torch.optim.AdamW([p for n, p in named if not is_matrix(n, p)], o.lr / 2, betas=(0.9, 0.95), weight_decay=0.0)
    step = 0
    if o.state and os.path.exists(o.state):
        state = torch.load(o.state, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        if "muon" in state:
            muon.load_state_dict(state["muon"])
            adam.load_state_dict(state["adam"])
        step = state["step"]
    if not o.plain:
        torch._dynamo.config.recompile_limit = 64
        for part in (k3torch.KDA, k3torch.MLA, k3torch.MoE, k3torch.MLP):
            part.forward = torch.compile(part.forward)
        k3torch.mix, k3torch.rms = torch.compile(k3torch.mix), torch.compile(k3torch.rms)
    biases = [layer.block_sparse_moe.gate.e_score_correction_bias for layer in model.model.layers if layer.is_moe]
    print(f"{o.model}: {sum(p.numel() for p in model.parameters())} parameters, from step {step}", flush=True)

    context = mp.get_context("fork" if device == "cpu" else "spawn")
    queues = [context.Queue(4) for _ in range(o.workers)]
    for i, q in enumerate(queues):
        context.Process(target=work, args=(q, step * 10**6 + i, o.workers, o.tokenizer, o.rows), daemon=True).start()
    test = list(held_out(o.tokenizer, o.test)) if o.test else []
    autocast = lambda: torch.autocast(device, torch.bfloat16)

    recent, told, counted, start = [], time.time(), step, step
    while step < o.steps and time.time() - began < o.seconds:
        rate = min(1.0, (step - start + 1) / WARMUP, (o.steps - step) / (DECAY * o.steps), (o.seconds - time.time() + began) / o.cooldown)
        for optimizer, top in ((muon, o.lr), (adam, o.lr / 2)):
            for group in optimizer.param_groups:
                group["lr"] = top * rate
        batch = [torch.from_numpy(x).to(device, non_blocking=True) for x in queues[step % o.workers].get()]
        with autocast():
            loss, answer, loads = loss_of(model, batch[0].long(), batch[1].long(), batch[2].float())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        muon.step()
        adam.step()
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for bias, load in zip(biases, loads):
                bias += BALANCE * rate * torch.sign(load.mean() - load)
        recent.append(answer)
        step += 1
        if step in (1, 2, 5, 20) or step % 100 == 0:
            mean = torch.stack(recent).mean().item()
            speed = (step - counted) * o.rows * LENGTH / (time.time() - told)
            waiting = min(q.qsize() for q in queues)
            uneven = (loads.max(-1).values / loads.mean(-1)).max().item()
            print(f"{step:6d}  loss {mean:.4f}  {speed / 1e3:.0f}k tokens/s  {time.time() - began:.0f} s  queue {waiting}  busiest expert {uneven:.1f}x", flush=True)
            recent, told, counted = [], time.time(), step
        if test and (step % o.every == 0 or step == o.steps):
            with autocast():
                shares = exact(model, test, device)
            print(f"{step:6d}  " + "  ".join(f"{k} {v:.3f}" for k, v in shares.items()), flush=True)
            save(model, c, o.tokenizer, o.out)
            told, counted = time.time(), step
    save(model, c, o.tokenizer, o.out)
    experts = [getattr(l.block_sparse_moe, w).detach().bfloat16().cpu() for l in model.model.layers if l.is_moe for w in ("w1", "w2", "w3")]
    torch.save(experts, os.path.join(o.out, "experts-bf16.pt"))
    if o.state:
        torch.save({"model": model.state_dict(), "muon": muon.state_dict(), "adam": adam.state_dict(), "step": step}, o.state)
    print(json.dumps({"model": o.model, "step": step, "seconds": round(time.time() - began), "tokens": step * o.rows * LENGTH}))


if __name__ == "__main__":
    main()
