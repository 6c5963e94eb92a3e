"""Kimi K3's text model in plain PyTorch: the reading form that agrees with the engine, and a form that trains fast.

Every tensor keeps the checkpoint's name; only the experts of a layer are stacked in one parameter a matrix
([experts, out, in]), and export.py takes them apart.  Shapes are [batch, position, channel] unless said.

Several samples share a row when training: `segment` numbers them, and nothing passes from one to the next.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

HEAD, NOPE, ROPE, VALUE, LATENT, TAPS = 128, 128, 64, 128, 512, 4
CHUNK, BLOCK = 64, 16  # of the KDA recurrence: tokens a step, rows that share a reference decay
LORA_EPS = 1e-6  # of the norms inside MLA


def rms(x, weight, eps):
    x32 = x.float()
    return x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps) * weight.float()


def situ(gate, up, beta, linear_beta):
    gate, up = gate.float(), up.float()
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear_beta * torch.tanh(up / linear_beta)


# --- MXFP4: e2m1 values with one power of two for 32 columns ---------------------------------------------------------

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SCALE_BIAS = 127


def mxfp4_exponent(w):
    """The scale's exponent of each block of 32 columns: the largest value lands in (3.25, 6.5] and clips to 6."""
    largest = w.detach().float().unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True)
    return torch.ceil(torch.log2((largest / 6.5).clamp_min(2.0**-100)))


def e2m1_code(x):
    """Number of the nearest magnitude in E2M1, ties to the even code."""
    x = x.abs()
    code = torch.zeros_like(x)
    for i, (low, high) in enumerate(zip(E2M1, E2M1[1:])):
        middle = (low + high) / 2
        code = code + ((x > middle) if i % 2 == 0 else (x >= middle)).to(x.dtype)
    return code


def mxfp4_round(w):
    """w as MXFP4 keeps it."""
    scale = torch.exp2(mxfp4_exponent(w))
    x = w.float().unflatten(-1, (-1, 32)) / scale
    code = e2m1_code(x)
    # 0 .5 1 1.5 2 3 4 6: halves up to 2, ones up to 4, then 6
    magnitude = torch.where(code <= 4, code / 2, torch.where(code <= 6, code - 2, torch.full_like(code, 6.0)))
    return (torch.sign(x) * magnitude * scale).flatten(-2)


class StraightThrough(torch.autograd.Function):
    """Rounded forward, as if it were not backward."""

    @staticmethod
    def forward(ctx, w):
        return mxfp4_round(w)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


# --- KDA -------------------------------------------------------------------------------------------------------------


def kda_recurrent(q, k, v, g, beta):
    """Token by token, as the engine decodes.  q, k, v, g [B, heads, T, 128], beta [B, heads, T], fp32."""
    state = torch.zeros(*q.shape[:2], HEAD, HEAD, dtype=q.dtype, device=q.device)
    out = []
    for t in range(q.shape[2]):
        state = state * g[:, :, t].exp().unsqueeze(-1)
        error = beta[:, :, t, None] * (v[:, :, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, :, t]))
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, :, t], error)
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, :, t]))
    return torch.stack(out, 2)


class UnitLowerInverse(torch.autograd.Function):
    """(I + M)^-1 for strictly lower triangular M, by substitution (products of powers would cancel)."""

    @staticmethod
    def forward(ctx, m):
        eye = torch.eye(m.shape[-1], dtype=m.dtype, device=m.device)
        inverse = torch.linalg.solve_triangular(m + eye, eye.expand_as(m), upper=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, gradient):
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ gradient @ inverse.mT).tril(-1)


def kda_chunked(q, k, v, g, beta, segment):
    """The same in chunks of 64 tokens, with several samples in a row.  T is a multiple of 64; segment [B, T]."""
    B, H, T, D = q.shape
    N, S = T // CHUNK, CHUNK // BLOCK
    q, k, v, g = (x.reshape(B, H, N, CHUNK, D) for x in (q, k, v, g))
    beta = beta.reshape(B, H, N, CHUNK, 1)
    seg = segment.reshape(B, 1, N, CHUNK)
    first = torch.zeros_like(seg[..., :1])
    before = torch.cat([first[:, :, :1] - 1, seg[:, :, :-1, -1:]], 2)  # the segment that the state belongs to
    carried = (seg == before).unsqueeze(-1)  # rows that continue it
    kept = (seg == seg[..., -1:]).unsqueeze(-1)  # rows of the segment that goes on
    same = (seg.unsqueeze(-1) == seg.unsqueeze(-2)).tril()

    G = g.cumsum(-2)
    # Each block of 16 rows measures decays from its first row, so that no exponent exceeds 15 * 5.
    reference = G[..., ::BLOCK, :].unsqueeze(-2)
    rows = (G.unflatten(-2, (S, BLOCK)) - reference).exp()
    columns = k.unsqueeze(-3) * (reference - G.unsqueeze(-3)).clamp(max=80.0).exp()
    left = torch.cat([k.unflatten(-2, (S, BLOCK)) * rows, q.unflatten(-2, (S, BLOCK)) * rows], -2)
    pairs = left @ columns.mT
    A = pairs[..., :BLOCK, :].flatten(-3, -2).masked_fill(~same, 0.0).tril(-1)
    P = pairs[..., BLOCK:, :].flatten(-3, -2).masked_fill(~same, 0.0)

    inverse = UnitLowerInverse.apply(beta * A)
    decay = G.exp()
    W = inverse @ (beta * k * decay * carried)
    U = inverse @ (beta * v)
    last = G[..., -1:, :]
    tail = k * (last - G).exp() * kept
    through = (last.exp() * carried[..., -1:, :]).mT  # how much of the state survives the chunk, [..., D, 1]

    state = torch.zeros(B, H, D, D, dtype=q.dtype, device=q.device)
    states, corrected = [], []
    for n in range(N):
        states.append(state)
        corrected.append(U[:, :, n] - W[:, :, n] @ state)
        state = through[:, :, n] * state + tail[:, :, n].mT @ corrected[-1]
    out = (q * decay * carried) @ torch.stack(states, 2) + P @ torch.stack(corrected, 2)
    return out.reshape(B, H, T, D)


class Weight(nn.Module):
    """A tensor that the checkpoint calls NAME.weight."""

    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))

    def forward(self, x):
        return F.linear(x, self.weight)


class KDA(nn.Module):
    def __init__(self, c):
        super().__init__()
        linear = c["linear_attn_config"]
        H, self.heads, self.lower = c["hidden_size"], linear["num_heads"], linear["gate_lower_bound"]
        self.eps = c["rms_norm_eps"]
        P = self.heads * HEAD
        for name in ("q", "k", "v"):
            self.add_module(f"{name}_proj", Weight(P, H))
            self.add_module(f"{name}_conv1d", Weight(P, 1, TAPS))
        self.A_log = nn.Parameter(torch.zeros((self.heads + 127) // 128 * 128))
        self.dt_bias = nn.Parameter(torch.empty(P))
        self.f_a_proj, self.f_b_proj = Weight(HEAD, H), Weight(P, HEAD)
        self.b_proj, self.g_proj = Weight(self.heads, H), Weight(P, H)
        self.o_norm, self.o_proj = Weight(HEAD), Weight(H, P)

    def convolve(self, u, taps, segment):
        """Four taps, the last on the current token; none reaches into another sample.  Then SiLU."""
        z = u * taps[:, 0, TAPS - 1]
        for back in range(1, TAPS):
            earlier = F.pad(u, (0, 0, back, 0))[:, : u.shape[1]]
            inside = F.pad(segment, (back, 0), value=-1)[:, : u.shape[1]] == segment
            z = z + earlier * taps[:, 0, TAPS - 1 - back] * inside.unsqueeze(-1)
        return F.silu(z)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, segment, recurrent=False):
        q, k, v = (
            self.split(self.convolve(getattr(self, f"{n}_proj")(x).float(), getattr(self, f"{n}_conv1d").weight, segment))
            for n in "qkv"
        )
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * HEAD**-0.5
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        r = self.f_b_proj(self.f_a_proj(x)).float() + self.dt_bias
        rate = self.A_log[: self.heads].exp().repeat_interleave(HEAD)
        g = self.split(self.lower * torch.sigmoid(rate * r))
        beta = torch.sigmoid(self.b_proj(x).float()).transpose(1, 2)
        with torch.autocast(x.device.type, enabled=False):
            o = kda_recurrent(q, k, v, g, beta) if recurrent else kda_chunked(q, k, v, g, beta, segment)
        gate = torch.sigmoid(self.split(self.g_proj(x)).float())
        o = rms(o, self.o_norm.weight, self.eps) * gate
        return self.o_proj(o.transpose(1, 2).flatten(-2))


class MLA(nn.Module):
    def __init__(self, c):
        super().__init__()
        H, self.heads, rank = c["hidden_size"], c["num_attention_heads"], c["q_lora_rank"]
        self.q_a_proj, self.q_a_layernorm = Weight(rank, H), Weight(rank)
        self.q_b_proj = Weight(self.heads * (NOPE + ROPE), rank)
        self.kv_a_proj_with_mqa, self.kv_a_layernorm = Weight(LATENT + ROPE, H), Weight(LATENT)
        self.kv_b_proj = Weight(self.heads * (NOPE + VALUE), LATENT)
        self.g_proj, self.o_proj = Weight(self.heads * VALUE, H), Weight(H, self.heads * VALUE)

    def forward(self, x, segment):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q = split(self.q_b_proj(rms(self.q_a_proj(x), self.q_a_layernorm.weight, LORA_EPS)))
        latent, key = self.kv_a_proj_with_mqa(x).split([LATENT, ROPE], -1)
        kn, v = split(self.kv_b_proj(rms(latent, self.kv_a_layernorm.weight, LORA_EPS))).split([NOPE, VALUE], -1)
        k = torch.cat([kn, key.unsqueeze(1).expand(-1, self.heads, -1, -1)], -1)
        allowed = (segment.unsqueeze(-1) == segment.unsqueeze(-2)).tril().unsqueeze(1)
        scores = (q @ k.mT).float() * (NOPE + ROPE) ** -0.5
        o = scores.masked_fill(~allowed, -math.inf).softmax(-1).to(v.dtype) @ v
        o = o.transpose(1, 2).flatten(-2) * torch.sigmoid(self.g_proj(x).float())
        return self.o_proj(o)


class MLP(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        H, self.beta = c["hidden_size"], (c["activation_situ_beta"], c["activation_situ_linear_beta"])
        self.gate_proj, self.up_proj, self.down_proj = Weight(width, H), Weight(width, H), Weight(H, width)

    def forward(self, x):
        return self.down_proj(situ(self.gate_proj(x), self.up_proj(x), *self.beta))


class MoE(nn.Module):
    """Every expert computes every token and the router's weights, mostly zero, join them: with small experts that is
    faster than sorting tokens, and the sums are the same."""

    def __init__(self, c):
        super().__init__()
        H, Z, I, E = (c[k] for k in ("hidden_size", "routed_expert_hidden_size", "moe_intermediate_size", "num_experts"))
        self.c, self.beta = c, (c["activation_situ_beta"], c["activation_situ_linear_beta"])
        self.gate = Weight(E, H)
        self.gate.e_score_correction_bias = nn.Parameter(torch.zeros(E), requires_grad=False)
        self.shared_experts = MLP(c, I * c["num_shared_experts"])
        self.routed_expert_down_proj, self.routed_expert_up_proj = Weight(Z, H), Weight(H, Z)
        self.routed_expert_norm = Weight(Z)
        self.w1, self.w3, self.w2 = (nn.Parameter(torch.empty(E, *s)) for s in ((I, Z), (I, Z), (Z, I)))
        self.quantised = True

    def expert(self, w):
        return StraightThrough.apply(w) if self.quantised else w

    def route(self, x):
        """Weights [.., experts], zero where an expert was not chosen, and the share of tokens that each one got."""
        with torch.autocast(x.device.type, enabled=False):
            score = torch.sigmoid(F.linear(x.float(), self.gate.weight.float()))
        biased = score.detach() + self.gate.e_score_correction_bias
        least = biased.topk(self.c["num_experts_per_token"], -1).values[..., -1:]
        chosen = biased >= least
        weight = score * chosen
        if self.c["moe_renormalize"]:
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        return weight * self.c["routed_scaling_factor"], chosen.float().mean((0, 1))

    def forward(self, x):
        weight, load = self.route(x)
        z = self.routed_expert_down_proj(x)
        E, I, Z = self.w1.shape
        gate = F.linear(z, self.expert(self.w1).reshape(E * I, Z))
        up = F.linear(z, self.expert(self.w3).reshape(E * I, Z))
        inner = situ(gate, up, *self.beta).unflatten(-1, (E, I)) * weight.unsqueeze(-1)
        total = F.linear(inner.flatten(-2).to(z.dtype), self.expert(self.w2).transpose(0, 1).reshape(Z, E * I))
        if self.c["latent_moe_use_norm"]:
            total = rms(total, self.routed_expert_norm.weight, self.c["rms_norm_eps"])
        return self.routed_expert_up_proj(total).float() + self.shared_experts(x).float(), load


def mix(candidates, norm, proj, eps=1e-5):
    """Softmax-weighted sum of the snapshots and the running residual; the keys are normalised, the values not."""
    v = torch.stack(candidates)
    score = torch.rsqrt(v.square().mean(-1) + eps) * (v * (norm.float() * proj.float().squeeze(0))).sum(-1)
    return (score.softmax(0).unsqueeze(-1) * v).sum(0)


class Layer(nn.Module):
    def __init__(self, c, number):
        super().__init__()
        H, self.eps = c["hidden_size"], c["rms_norm_eps"]
        self.is_kda = number + 1 in c["linear_attn_config"]["kda_layers"]
        self.self_attn = KDA(c) if self.is_kda else MLA(c)
        self.is_moe = number >= c["first_k_dense_replace"]
        if self.is_moe:
            self.block_sparse_moe = MoE(c)
        else:
            self.mlp = MLP(c, c["intermediate_size"])
        self.input_layernorm, self.post_attention_layernorm = Weight(H), Weight(H)
        for site in ("self_attention_res", "mlp_res"):
            self.add_module(site + "_norm", Weight(H))
            self.add_module(site + "_proj", Weight(1, H))
        self.pushes = number % c["attn_res_block_size"] == 0

    def attend(self, p, snapshots, segment, recurrent):
        x = mix(snapshots + [p], self.self_attention_res_norm.weight, self.self_attention_res_proj.weight) if snapshots else p
        x = rms(x, self.input_layernorm.weight, self.eps)
        a = self.self_attn(x, segment, recurrent) if self.is_kda else self.self_attn(x, segment)
        return a.float() if self.pushes else p + a.float()

    def feed(self, p, snapshots):
        y = mix(snapshots + [p], self.mlp_res_norm.weight, self.mlp_res_proj.weight)
        y = rms(y, self.post_attention_layernorm.weight, self.eps)
        m, load = self.block_sparse_moe(y) if self.is_moe else (self.mlp(y), None)
        return p + m.float(), load


class K3(nn.Module):
    def __init__(self, config):
        super().__init__()
        c = self.c = config.get("text_config", config)
        self.model = nn.Module()
        self.model.embed_tokens = Weight(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.model.output_attn_res_norm = Weight(c["hidden_size"])
        self.model.output_attn_res_proj = Weight(1, c["hidden_size"])
        self.model.norm = Weight(c["hidden_size"])
        self.lm_head = Weight(c["vocab_size"], c["hidden_size"])

    def start(self, generator):
        """Weights before training: linear 1/sqrt(in), branches' ends smaller, residual mixing even."""
        ends = 0.5 / math.sqrt(2 * self.c["num_hidden_layers"])
        with torch.no_grad():
            for name, w in self.named_parameters():
                normal = torch.randn(w.shape, generator=generator)
                if name.endswith("e_score_correction_bias"):
                    value = torch.zeros_like(w)
                elif name.endswith("A_log"):
                    value = torch.zeros_like(w)
                elif name.endswith("dt_bias"):
                    value = torch.rand(w.shape, generator=generator) * 6 - 7  # decays from e^-1.3 to e^-0.005 a token
                elif "_res_proj" in name:
                    value = torch.zeros_like(w)
                elif "embed_tokens" in name:
                    value = normal
                elif "conv1d" in name:
                    value = normal * 0.1
                    value[:, 0, TAPS - 1] += 1.0
                elif w.dim() == 1:
                    value = torch.ones_like(w)
                else:
                    value = normal * w.shape[-1] ** -0.5
                    if name.endswith(("o_proj.weight", "down_proj.weight", "up_proj.weight")) and w.shape[0] == self.c["hidden_size"]:
                        value = value * ends
                    if "lm_head" in name:
                        value = value * 0.5
                w.copy_(value)

    def forward(self, ids, segment=None, recurrent=False):
        """Logits [B, T, vocab] and each MoE layer's loads."""
        if segment is None:
            segment = torch.zeros_like(ids)
        p, snapshots, loads = F.embedding(ids, self.model.embed_tokens.weight), [], []
        for layer in self.model.layers:
            a = layer.attend(p, snapshots, segment, recurrent)
            if layer.pushes:
                snapshots = snapshots + [p]
            p, load = layer.feed(a, snapshots)
            if load is not None:
                loads.append(load)
        h = mix(snapshots + [p], self.model.output_attn_res_norm.weight, self.model.output_attn_res_proj.weight)
        h = rms(h, self.model.norm.weight, self.c["rms_norm_eps"])
        return self.lm_head(h), torch.stack(loads)
