"""OpenAI's API over replicas of a model on a Ray cluster: a request has the same bytes whichever replica answers.

    serve run serve_app:app model=/path/to/model.gguf replicas=2 threads=4
"""

import asyncio
import json
import os

import fastapi
from fastapi.responses import JSONResponse, StreamingResponse
from ray import serve

import llmrun

api = fastapi.FastAPI()


@serve.deployment(max_ongoing_requests=64)
@serve.ingress(api)
class Replica:
    """A model and its answers. LLM_ISA in a machine's environment, when Ray starts there, chooses its instruction set."""

    def __init__(self, model: str, **options):
        self.model = llmrun.Model(model, isa=os.environ.get("LLM_ISA"), **options)
        self.headers = {"x-isa": self.model.isa}

    @api.get("/v1/models")
    def models(self):
        return {"object": "list", "data": [{"id": self.model.name, "object": "model", "owned_by": "llmrun", "created": 0}]}

    @api.post("/v1/completions")
    async def completions(self, request: fastapi.Request):
        return await self.reply(request, self.model.complete, self.model.stream_complete)

    @api.post("/v1/chat/completions")
    async def chat(self, request: fastapi.Request):
        return await self.reply(request, self.model.chat, self.model.stream_chat)

    async def reply(self, request: fastapi.Request, whole, stream):
        try:
            body = await request.json()
            body.pop("model", None)  # there is one
            if body.pop("stream", False):
                chunks = await asyncio.to_thread(stream, **body)
                return StreamingResponse(self.events(chunks), media_type="text/event-stream", headers=self.headers)
            return JSONResponse(await asyncio.to_thread(whole, **body), headers=self.headers)
        except llmrun.Error as error:
            status = 429 if error.field == "queue" else 400
            return self.refusal(status, str(error), error.field)
        except (TypeError, ValueError, AttributeError) as error:  # no JSON, no object, or no prompt
            return self.refusal(400, str(error), None)

    def refusal(self, status: int, message: str, field: str | None):
        error = {"message": message, "type": "invalid_request_error", "param": field, "code": None}
        return JSONResponse({"error": error}, status, self.headers)

    def events(self, chunks):
        """The chunks as server-sent events."""
        for chunk in chunks:
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"


def app(args: dict[str, str]) -> serve.Application:
    """`serve run`'s arguments: model, replicas, threads, chat_template."""
    threads = int(args.get("threads", 1))
    replica = Replica.options(num_replicas=int(args.get("replicas", 1)), ray_actor_options={"num_cpus": threads})
    return replica.bind(args["model"], threads=threads, chat_template=args.get("chat_template", "auto"))
