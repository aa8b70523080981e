#!/usr/bin/env python3
"""Freezes a tiny assistant of the golden model `gemma4`, with what transformers computes of both.

    build/hf-venv/bin/python tests/golden/make_assistant.py

assistant/gemma4-assistant.gguf is what the converter made of it, gemma4-assistant.json texts and the logits of the tokens that the
assistant proposes behind them. Needs the packages of tools/convert/requirements.txt (`./dev convert` installs them).
"""

import copy
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "hf_parity")]

import make  # noqa: E402  (puts the oracle on the path)
import torch  # noqa: E402
from make_architectures import SHAPES  # noqa: E402
from transformers import AutoModelForCausalLM, Gemma4AssistantConfig, Gemma4AssistantForCausalLM  # noqa: E402
from variations import vary  # noqa: E402

OUT = HERE / "assistant"
TRUNK = HERE / "architectures" / "gemma4"
LENGTHS = (2, 5, 40)  # of texts; the last is longer than the windows
STEPS = 3


def assistant_config(trunk) -> Gemma4AssistantConfig:
    text = copy.deepcopy(trunk).to_dict()
    text |= {"architectures": None, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_kv_shared_layers": 3, "vocab_size_per_layer_input": 0,
             "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "final_logit_softcapping": None}
    # A layer's number follows from its kind.
    text["per_layer_config"] = {"2": trunk.to_dict()["per_layer_config"]["5"]}
    return Gemma4AssistantConfig(text_config=text, backbone_hidden_size=trunk.hidden_size)


@torch.no_grad()
def main() -> None:
    (shape,) = (shape for shape in SHAPES if shape.name == "gemma4")
    trunk = AutoModelForCausalLM.from_pretrained(TRUNK, dtype=torch.float32).eval()
    torch.manual_seed(2026)
    config = assistant_config(trunk.config)
    assistant = Gemma4AssistantForCausalLM(config).float().eval()
    state = dict(assistant.named_parameters()) | {name: value for name, value in assistant.named_buffers() if name.endswith("layer_scalar")}
    vary(state, "peaked", torch.Generator().manual_seed(2026))
    for value in state.values():
        value.copy_(value.half().float())
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copy.deepcopy(assistant).half().save_pretrained(folder)
        make.make_tokenizer(replace(shape), Path(folder))
        make.convert(Path(folder), OUT / "gemma4-assistant.gguf")

    # A window of transformers has the position w before, llama.cpp's w - 1 positions and the next one, which has no key here.
    window = trunk.config.sliding_window
    assistant.config.get_text_config().sliding_window = window - 2
    embed, texts = trunk.get_input_embeddings(), []
    for length in LENGTHS:
        ids = [1, *torch.randint(3, shape.vocab, (length - 1,)).tolist()]
        out = trunk(torch.tensor([ids[:-1]]), output_hidden_states=True, return_shared_kv_states=True)
        hidden, token, steps = out.hidden_states[-1][:, -1:], ids[-1], []
        for _ in range(STEPS):
            result = assistant(inputs_embeds=torch.cat([embed(torch.tensor([[token]])), hidden], dim=-1),
                               position_ids=torch.tensor([[length - 1]]), shared_kv_states=out.shared_kv_states)
            steps.append([round(value, 6) for value in result.logits[0, 0].tolist()])
            hidden, token = result.last_hidden_state, int(result.logits[0, 0].argmax())
        texts.append({"ids": ids, "logits": steps})
    (OUT / "gemma4-assistant.json").write_text(json.dumps({"texts": texts}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
