"""A small tiktoken vocabulary with K3's pre-tokenisation, and encoding with it.

Tokens are made so that a small model can spell and copy: digits stay alone, and letters join only with letters (after
one capital or one space).

usage: tokenizer.py DIRECTORY    trains on samples of data.py and writes tiktoken.model and tokenizer_config.json
"""
import base64
import collections
import functools
import heapq
import json
import os
import string
import sys

import regex

PRETOKEN = regex.compile(
    r"(?V1)"
    r"[\p{Han}]+"
    r"|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
SLOTS = 256  # special ids after the base tokens
SPECIALS = {
    0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>", 6: "[start_header_id]",
    7: "[end_header_id]", 9: "[EOT]", 18: "<|media_begin|>", 19: "<|media_content|>", 20: "<|media_end|>",
    21: "<|media_pad|>", 65: "<osagent_mode>", 254: "[UNK]", 255: "[PAD]",
}  # fmt: skip
NOT_SPECIAL = (3, 4, 5)  # shown by a decoder that skips special tokens
MAY_JOIN = regex.compile(rb" ?[A-Z]?[a-z]*|[^A-Za-z0-9\x80-\xff]+|[\x80-\xff]+")


class Tokenizer:
    def __init__(self, directory):
        with open(os.path.join(directory, "tiktoken.model"), "rb") as f:
            self.tokens = [base64.b64decode(line.split()[0]) for line in f]
        self.rank = {t: i for i, t in enumerate(self.tokens)}
        self.base = len(self.tokens)
        self.special = {text: self.base + i for i, text in SPECIALS.items()}
        self.piece = functools.lru_cache(1 << 16)(self._piece)

    def _piece(self, text):
        data = text.encode()
        if data in self.rank:
            return (self.rank[data],)
        parts = [data[i : i + 1] for i in range(len(data))]
        while len(parts) > 1:
            rank, at = min((self.rank.get(a + b, 1 << 30), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
            if rank == 1 << 30:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return tuple(self.rank[p] for p in parts)

    def encode(self, text):
        return [i for m in PRETOKEN.finditer(text) for i in self.piece(m.group())]

    def decode(self, ids):
        names = {i: t.encode() for t, i in self.special.items()}
        return b"".join(self.tokens[i] if i < self.base else names.get(i, b"") for i in ids).decode(errors="replace")


def train(texts, size, spaced):
    """Base tokens in the order of their ranks: bytes, the commonest joins, and last `spaced` tokens with a space before
    them.  The space joins last, so a word is cut the same way wherever it stands, and copying it is easy."""
    pieces = collections.Counter(m.group().encode() for t in texts for m in PRETOKEN.finditer(t))
    tokens = [bytes([i]) for i in range(256)]
    known, words = set(tokens), []
    for piece, count in pieces.items():
        after_space = piece[:1] == b" " and piece[1:2].isalpha()
        letters = piece[1:] if after_space else piece
        words.append(([letters[i : i + 1] for i in range(len(letters))], count, after_space))
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for n, (parts, count, _) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += count
            where[pair].add(n)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    while len(tokens) < size - spaced:
        count, pair = heapq.heappop(heap)
        if pairs[pair] != -count or not MAY_JOIN.fullmatch(pair[0] + pair[1]):
            continue
        joined = pair[0] + pair[1]
        if joined not in known:
            known.add(joined)
            tokens.append(joined)
        changed = set()
        for n in sorted(where.pop(pair)):
            parts, count, _ = words[n]
            for p in zip(parts, parts[1:]):
                pairs[p] -= count
                changed.add(p)
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == pair:
                    parts[i : i + 2] = [joined]
                i += 1
            for p in zip(parts, parts[1:]):
                pairs[p] += count
                where[p].add(n)
                changed.add(p)
        for p in changed:
            if pairs[p] > 0:
                heapq.heappush(heap, (-pairs[p], p))
    first = collections.Counter({c.encode(): 1 << 40 for c in string.ascii_letters})
    for parts, count, after_space in words:
        if after_space:
            first[parts[0]] += count
    best = sorted(first, key=lambda t: (-first[t], t))[:spaced]
    return tokens + [b" " + t for t in best if b" " + t not in known]


def write(tokens, directory):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "tiktoken.model"), "wb") as f:
        for i, t in enumerate(tokens):
            f.write(base64.b64encode(t) + b" %d\n" % i)
    added = {
        str(len(tokens) + i): {
            "content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": i not in NOT_SPECIAL,
        }
        for i, text in SPECIALS.items()
    }  # fmt: skip
    config = {"added_tokens_decoder": added, "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]",
              "unk_token": "[UNK]", "tokenizer_class": "TikTokenTokenizer"}  # fmt: skip
    with open(os.path.join(directory, "tokenizer_config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    import chatfmt
    import data

    def texts(samples):
        for n in range(samples):
            s = data.sample(n, "train")
            if s:
                for part in (*chatfmt.prompt(s["request"]), *chatfmt.answer(s["answer"], s["request"].get("thinking", True))):
                    if not part[1]:
                        yield part[0]

    write(train(texts(20000), 1280, 320), sys.argv[1])
