"""lm-eval on a model in this process, with the figures that `local-completions` gets of llmserve, to the last digit.

    python -m llmrun.lm_eval run --model llmrun --model_args path=model.gguf --tasks hellaswag --batch_size 16

Needs lm_eval[api]. In a program, importing this module makes the name "llmrun" known to lm_eval.
"""

from __future__ import annotations

import copy
from typing import Any

from lm_eval.api.registry import register_model
from lm_eval.models.openai_completions import LocalCompletionsAPI

from ._model import Model


class _Tokenizer:
    """A model's vocabulary in the shape of lm-eval's remote tokenizer."""

    def __init__(self, model: Model):
        self._model = model
        self.bos_token_id, self.eos_token_id = model.bos_id, model.eos_id
        self.eos_token = None if self.eos_token_id is None else model.detokenize([self.eos_token_id], show_special=True)

    def encode(self, text: str) -> list[int]:
        return self._model.tokenize(text, add_special=False)

    def batch_decode(self, texts: list[list[int]]) -> list[str]:
        return [self._model.detokenize(ids) for ids in texts]


@register_model("llmrun")
class LlmrunLM(LocalCompletionsAPI):
    """lm-eval's client of /v1/completions, whose requests are answered here. Texts of a batch (batch_size) are computed together.

    path, threads, isa, compute, kv, context: as of llmrun.Model. Chat templates (--apply_chat_template) are not supported.
    """

    def __init__(self, path: str, threads: int = 0, isa: str | None = None, compute: str = "int8", kv: str = "f16", context: int = 0,
                 max_length: int | None = None, **kwargs: Any):
        self.engine = Model(path, threads=int(threads), isa=isa, compute=compute, kv=kv, context=int(context))
        kwargs.pop("num_concurrent", None)  # a batch is what is computed at once
        super().__init__(model=path, base_url="", tokenizer_backend="none", max_length=int(max_length or self.engine.context), **kwargs)
        self.tokenizer_backend, self.tokenizer, self.tokenized_requests = "remote", _Tokenizer(self.engine), True

    def model_call(self, messages: Any, *, generate: bool = True, gen_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        payload = self._create_payload(self.create_message(messages), generate=generate, gen_kwargs=copy.deepcopy(gen_kwargs),
                                       seed=self._seed, eos=self.eos_string, **kwargs)
        return self.engine.complete(**{name: value for name, value in payload.items() if name != "model"})

    def apply_chat_template(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("--apply_chat_template is for lm-eval's local-chat-completions with llmserve")


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
