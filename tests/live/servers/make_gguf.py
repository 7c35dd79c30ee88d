# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes a tiny llama model of random weights: make_gguf.py FILE (needs python3-gguf).

Its words and the 256 byte tokens are about equally likely, so answers often hold characters that
take several tokens, and broken ones.
"""
import sys

import gguf
import numpy

EMBEDDING, FEED_FORWARD, BLOCKS, HEADS, CONTEXT = 256, 768, 6, 4, 8192
WORDS = [f"\u2581{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "\u00e9", "\u65e5")] * 3
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def vocabulary():
    tokens = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    tokens += [(f"<0x{b:02X}>", 0.0, BYTE) for b in range(256)]
    tokens += [(f"{word}{i // 84 or ''}", -float(i + 1), NORMAL) for i, word in enumerate(WORDS)]
    return tokens


def main():
    tokens = vocabulary()
    rng = numpy.random.default_rng(20011)
    w = gguf.GGUFWriter(sys.argv[1], "llama")
    w.add_name("tiny")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(EMBEDDING)
    w.add_block_count(BLOCKS)
    w.add_feed_forward_length(FEED_FORWARD)
    w.add_head_count(HEADS)
    w.add_head_count_kv(HEADS)
    w.add_rope_dimension_count(EMBEDDING // HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(len(tokens))
    w.add_tokenizer_model("llama")
    w.add_token_list([t[0].encode() for t in tokens])
    w.add_token_scores([t[1] for t in tokens])
    w.add_token_types([t[2] for t in tokens])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_chat_template("{% for m in messages %}{{ m['content'] }} {% endfor %}")

    def tensor(name, *shape):
        w.add_tensor(name, (rng.standard_normal(shape) * 0.08).astype(numpy.float32))

    def ones(name):
        w.add_tensor(name, numpy.ones(EMBEDDING, dtype=numpy.float32))

    tensor("token_embd.weight", len(tokens), EMBEDDING)
    tensor("output.weight", len(tokens), EMBEDDING)
    ones("output_norm.weight")
    for i in range(BLOCKS):
        ones(f"blk.{i}.attn_norm.weight")
        ones(f"blk.{i}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"blk.{i}.{part}.weight", EMBEDDING, EMBEDDING)
        tensor(f"blk.{i}.ffn_gate.weight", FEED_FORWARD, EMBEDDING)
        tensor(f"blk.{i}.ffn_up.weight", FEED_FORWARD, EMBEDDING)
        tensor(f"blk.{i}.ffn_down.weight", EMBEDDING, FEED_FORWARD)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
