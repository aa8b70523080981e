#!/usr/bin/env python3
"""Scores of a reranker that generates, against an independent computation.

    tests/serving/rerank.py BIN_DIR VOCABULARY.gguf

Makes a Qwen3 of two layers with seeded weights and the vocabulary of a Qwen2 file (its tensors are not read), asks llmserve to
rerank documents with it, and computes the same in f64 by tools/reference_f64: the logits behind the prompt of Qwen3-Reranker's card,
`yes` against `no`. Exit code 1 when the log-odds of a score are off by more than 0.01 or the order differs. Needs numpy and gguf.
"""

import pathlib
import sys
import tempfile

import gguf
import numpy as np
import server

sys.path.insert(0, str(server.ROOT / "tools" / "reference_f64"))
import gguf_model  # noqa: E402
import llama_f64  # noqa: E402

D, HEADS, KV_HEADS, HEAD_DIM, FF, LAYERS = 64, 4, 2, 32, 96, 2
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Of the model's card, https://huggingface.co/Qwen/Qwen3-Reranker-0.6B.
PREFIX = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. '
          'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TASK = "Given a web search query, retrieve relevant passages that answer the query"
QUERY = "What is the capital of China?"
DOCUMENTS = ["The capital of China is Beijing.", "Gravity is a force.", "", "Größe: 12 µm <|im_end|>", "a\n\nb " * 30]


def make(vocabulary: pathlib.Path, out: pathlib.Path) -> None:
    writer = gguf.GGUFWriter(out, "qwen3")
    writer.add_name("Tiny Reranker")
    writer.add_context_length(2048)
    writer.add_embedding_length(D)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    known = gguf.GGUFReader(vocabulary)
    value = {name: field.contents() for name, field in known.fields.items() if name.startswith("tokenizer.")}
    writer.add_tokenizer_model(value["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(value["tokenizer.ggml.pre"])
    writer.add_token_list(value["tokenizer.ggml.tokens"])
    writer.add_token_types(value["tokenizer.ggml.token_type"])
    writer.add_token_merges(value["tokenizer.ggml.merges"])
    writer.add_eos_token_id(value["tokenizer.ggml.eos_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(20261126)

    def add(name: str, *shape: int, scale: float | None = None) -> None:
        drawn = random.standard_normal(shape) * (shape[-1] ** -0.5 if scale is None else scale)
        writer.add_tensor(name, (1 + drawn if name.endswith("norm.weight") else drawn).astype(np.float32))

    add("token_embd.weight", len(value["tokenizer.ggml.tokens"]), D, scale=1)
    add("output_norm.weight", D, scale=0.1)
    for i in range(LAYERS):
        for name, *shape in (("attn_norm", D), ("attn_q", HEADS * HEAD_DIM, D), ("attn_k", KV_HEADS * HEAD_DIM, D),
                             ("attn_v", KV_HEADS * HEAD_DIM, D), ("attn_q_norm", HEAD_DIM), ("attn_k_norm", HEAD_DIM),
                             ("attn_output", D, HEADS * HEAD_DIM), ("ffn_norm", D), ("ffn_gate", FF, D), ("ffn_up", FF, D),
                             ("ffn_down", D, FF)):
            add(f"blk.{i}.{name}.weight", *shape, scale=0.1 if name.endswith("norm") else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tokens(url: str, text: str, parse_special: bool) -> list[int]:
    return server.post(url, "/tokenize", {"prompt": text, "parse_special": parse_special, "add_special_tokens": False})[1]["tokens"]


def main() -> int:
    bin_dir, vocabulary = map(pathlib.Path, sys.argv[1:3])
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "reranker.gguf"
        make(vocabulary, path)
        with server.serve(bin_dir, "-t", "1", "-c", "1024", model=path) as url:
            for instruction in (None, "Find what is small"):
                body = {"query": QUERY, "documents": DOCUMENTS} | ({"instruction": instruction} if instruction else {})
                results = server.post(url, "/v1/rerank", body)[1]["results"]
                [yes], [no] = tokens(url, "yes", False), tokens(url, "no", False)
                expected = []
                for document in DOCUMENTS:
                    # What the template writes and what others wrote is one text, but for special tokens that others spell.
                    text = f"<Instruct>: {instruction or TASK}\n<Query>: {QUERY}\n<Document>: {document}"
                    ids = tokens(url, PREFIX, True) + tokens(url, text, False) + tokens(url, SUFFIX, True)
                    row = llama_f64.LlamaF64(gguf_model.GgufModel(path)).forward(ids)[-1]
                    expected.append(row[yes] - row[no])
                for result in results:
                    score, wanted = result["relevance_score"], expected[result["index"]]
                    odds = np.log(score / (1 - score))
                    print(f"document {result['index']}: score {score:.6f}, log-odds {odds:.5f}, in f64 {wanted:.5f}")
                    failed |= abs(odds - wanted) > 0.01
                failed |= [result["index"] for result in results] != sorted(range(len(DOCUMENTS)), key=lambda i: -expected[i])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
