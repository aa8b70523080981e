"""A CPU engine for quantized GGUFs whose bits never change.

    import llmrun

    model = llmrun.Model("model.gguf")
    for piece in model.generate("Once upon a time", max_tokens=64, temperature=0):
        print(piece, end="", flush=True)
    answer = model.chat([{"role": "user", "content": "Why is the sky blue?"}])
    print(answer["choices"][0]["message"]["content"])

Texts are asked for and answered as by llmserve, with the same fields (docs/serving.md) and the same bits, whatever else a model
generates at the time. Errors are `llmrun.Error`.
"""

from __future__ import annotations

from importlib.metadata import version

from ._errors import ArgumentError, Error, ErrorCode, FileError, UnknownArgumentError
from ._hub import CachedModel, list_models
from ._model import Answer, Model, Text, self_check

__version__ = version("llmrun")
__all__ = ["Answer", "ArgumentError", "CachedModel", "Error", "ErrorCode", "FileError", "Model", "Text", "UnknownArgumentError",
           "list_models", "self_check"]
