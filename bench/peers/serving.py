#!/usr/bin/env python3
"""Measures servers that speak OpenAI's API, in turn; standard library only. docs/performance.md has results.

    bench/peers/serving.py clients ours=8080 llama-server=8081 --clients 16 --words 12 --tokens 64
    bench/peers/serving.py mixed ours=8080 llama-server=8081 --chats 15 --tokens 512 --long 7900

clients: that many chats at once, streamed, with the server's default sampling. Tokens per second (of replies; prompts take their
time), and the time to the first token. mixed: chats, and after a second one prompt of about --long tokens that no cache has. How long
the chats wait between tokens, and the long prompt for its first one.
"""

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass, field

WORDS = ("the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all her "
         "she there would their we him been has when who will no more if out so up said what its about than into them can only other time new "
         "some could these two may first then do any like my now over such our man me even most made after also well did many before").split()
CHARACTERS_PER_TOKEN = 4.5  # of such words, about


@dataclass
class Reply:
    started: float
    times: list[float] = field(default_factory=list)  # of each piece of text

    @property
    def first(self) -> float:
        return self.times[0] - self.started

    def gaps(self) -> list[float]:
        return [later - before for before, later in zip(self.times, self.times[1:])]


async def stream(port: int, path: str, body: dict) -> Reply:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body | {"stream": True, "ignore_eos": True}).encode()
    writer.write(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 f"Content-Length: {len(content)}\r\n\r\n".encode() + content)
    await writer.drain()
    reply = Reply(time.monotonic())
    status = await reader.readline()
    if b" 200 " not in status:
        raise SystemExit(f"{path}: {status.decode().strip()}: {(await reader.read(2000)).decode(errors='replace')}")
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:]).get("choices") or ():
            if choice.get("text") or choice.get("delta", {}).get("content"):
                reply.times.append(time.monotonic())
    writer.close()
    return reply


def chat(port: int, rng: random.Random, n_words: int, n_tokens: int):
    text = " ".join(rng.choices(WORDS, k=n_words))
    return stream(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": n_tokens,
                                                 "seed": rng.randrange(1 << 30)})


def at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def clients(port: int, rng: random.Random, args: argparse.Namespace) -> str:
    started = time.monotonic()
    replies = await asyncio.gather(*(chat(port, rng, args.words, args.tokens) for _ in range(args.clients)))
    seconds = time.monotonic() - started
    first = [reply.first for reply in replies]
    return f"{args.clients * args.tokens / seconds:.0f} tokens/s, first token {at(first, 0.5):.2f} s (median), {at(first, 0.95):.2f} s (p95)"


async def mixed(port: int, rng: random.Random, args: argparse.Namespace) -> str:
    async def long_prompt() -> Reply:
        await asyncio.sleep(1)
        text = " ".join(rng.choices(WORDS, k=int(args.long * CHARACTERS_PER_TOKEN / 4.6)))
        return await stream(port, "/v1/completions", {"prompt": text, "max_tokens": 8})

    *chats, long = await asyncio.gather(*(chat(port, rng, args.words, args.tokens) for _ in range(args.chats)), long_prompt())
    gaps = [gap for reply in chats for gap in reply.gaps()]
    return (f"{at(gaps, 0.5) * 1e3:.0f} ms between tokens (median), {at(gaps, 0.99) * 1e3:.0f} ms (p99, {at(gaps, 0.99) / at(gaps, 0.5):.1f} x), "
            f"{max(gaps) * 1e3:.0f} ms (most); the long prompt's first token after {long.first:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("clients", "mixed"))
    parser.add_argument("server", nargs="+", metavar="NAME=PORT")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--chats", type=int, default=15)
    parser.add_argument("--words", type=int, default=48, help="of a chat's message")
    parser.add_argument("--tokens", type=int, default=64, help="of a reply")
    parser.add_argument("--long", type=int, default=7900, help="tokens of the long prompt, about")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for turn in range(args.rounds):
        for server in args.server:
            name, port = server.split("=")
            rng = random.Random(f"{turn} {time.time()}")  # texts that no cache has
            print(f"{name:<14} {asyncio.run({'clients': clients, 'mixed': mixed}[args.what](int(port), rng, args))}", flush=True)


if __name__ == "__main__":
    main()
