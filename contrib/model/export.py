"""Between a K3 module and the public checkpoint format: config.json and model.safetensors,
with experts in MXFP4 where the config has a quantization_config and in BF16 where it has none."""
import json
import os
import struct

import numpy as np
import torch

from k3torch import E2M1, K3, SCALE_BIAS, e2m1_code, mxfp4_exponent

PREFIX = "language_model."
KEPT_F32 = ("conv1d.weight", "A_log", "dt_bias", "o_norm.weight", "e_score_correction_bias")


def bfloat16_bits(x):
    return x.detach().to(torch.bfloat16).contiguous().view(torch.int16).cpu().numpy().view(np.uint16)


def pack(w):
    """[out, in] as (packed [out, in/2], scale [out, in/32]); the even column is the low nibble."""
    exponent = mxfp4_exponent(w)
    x = w.detach().float().unflatten(-1, (-1, 32)) / torch.exp2(exponent)
    code = e2m1_code(x).to(torch.uint8) | ((x < 0).to(torch.uint8) << 3)
    code = code.flatten(-2).cpu().numpy()
    return code[:, 0::2] | code[:, 1::2] << 4, (exponent.squeeze(-1) + SCALE_BIAS).to(torch.uint8).cpu().numpy()


def unpack(packed, scale):
    table = np.array(E2M1 + tuple(-x for x in E2M1), dtype=np.float32)
    code = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
    return table[code] * np.exp2(scale.astype(np.float32) - SCALE_BIAS).repeat(32, -1)


def is_quantised(config):
    return "quantization_config" in config["text_config"]


def tensors(model, quantised):
    """(name, dtype, array) of everything, in the order of the layers."""
    for name, w in model.named_parameters():
        if name.rsplit(".", 1)[-1] in ("w1", "w2", "w3"):
            continue
        if name.endswith(KEPT_F32):
            yield PREFIX + name, "F32", w.detach().float().cpu().numpy()
        else:
            yield PREFIX + name, "BF16", bfloat16_bits(w)
    for i, layer in enumerate(model.model.layers):
        if not layer.is_moe:
            continue
        moe = layer.block_sparse_moe
        for e in range(moe.w1.shape[0]):
            for name in ("w1", "w2", "w3"):
                w, at = getattr(moe, name)[e], f"{PREFIX}model.layers.{i}.block_sparse_moe.experts.{e}.{name}.weight"
                if not quantised:
                    yield at, "BF16", bfloat16_bits(w)
                    continue
                packed, scale = pack(w)
                yield at + "_packed", "U8", packed
                yield at + "_scale", "U8", scale


def write(model, config, directory):
    os.makedirs(directory, exist_ok=True)
    header, offset, arrays = {"__metadata__": {"format": "pt"}}, 0, []
    for name, dtype, a in tensors(model, is_quantised(config)):
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [offset, offset + a.nbytes]}
        offset += a.nbytes
        arrays.append(a)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(directory, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in arrays:
            f.write(a.tobytes())
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


def read_safetensors(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = f.read()
    kinds = {"F32": np.float32, "BF16": np.uint16, "U8": np.uint8, "I32": np.int32}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        a = np.frombuffer(data[slice(*t["data_offsets"])], kinds[t["dtype"]]).reshape(t["shape"])
        yield name, (a.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else a


def read(directory):
    """The module that a checkpoint holds, in fp32, experts as the file keeps them."""
    with open(os.path.join(directory, "config.json")) as f:
        config = json.load(f)
    model = K3(config)
    found = dict(read_safetensors(os.path.join(directory, "model.safetensors")))
    with torch.no_grad():
        for name, w in model.named_parameters():
            base, last = name.rsplit(".", 1)
            if last not in ("w1", "w2", "w3"):
                w.copy_(torch.tensor(found.pop(PREFIX + name)))
                continue
            for e in range(w.shape[0]):
                at = f"{PREFIX}{base}.experts.{e}.{last}.weight"
                if is_quantised(config):
                    w[e] = torch.from_numpy(unpack(found.pop(at + "_packed"), found.pop(at + "_scale")))
                else:
                    w[e] = torch.tensor(found.pop(at))
    assert not found, f"{directory}: unknown tensors {sorted(found)[:3]}"
    for layer in model.model.layers:
        if layer.is_moe:
            layer.block_sparse_moe.quantised = False  # they have been rounded already
    return model
