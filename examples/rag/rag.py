#!/usr/bin/env python3
"""Answers a question from text files: pieces of them, their embeddings, the nearest ones, a chat about those.

    rag.py FILE... -q QUESTION [--url URL] [--embedding-url URL] [-k N]
"""

import argparse
import dataclasses
import os
import pathlib

import numpy as np
import openai

PIECE = 1000  # characters, about 250 tokens
BATCH = 64  # texts of a request
PROMPT = "Answer the question from these excerpts alone. Name the file that you have it from.\n\n{excerpts}\n\nQuestion: {question}"


@dataclasses.dataclass(frozen=True)
class Piece:
    """Paragraphs of a file that stand one after another."""

    file: str
    line: int
    text: str


def pieces_of(path: pathlib.Path, most: int = PIECE) -> list[Piece]:
    """The file's paragraphs, as many in a piece as `most` characters hold; a longer one is a piece by itself."""
    pieces: list[Piece] = []
    line = 1
    for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
        text, first = paragraph.strip("\n"), line
        line += paragraph.count("\n") + 2
        if not text.strip():
            continue
        if pieces and len(pieces[-1].text) + len(text) + 2 <= most:
            pieces[-1] = dataclasses.replace(pieces[-1], text=pieces[-1].text + "\n\n" + text)
        else:
            pieces.append(Piece(str(path), first, text))
    return pieces


def model_of(client: openai.OpenAI) -> str:
    return client.models.list().data[0].id


def embed(client: openai.OpenAI, texts: list[str]) -> np.ndarray:
    """A row of length 1 for each text."""
    rows = []
    for begin in range(0, len(texts), BATCH):
        answer = client.embeddings.create(model=model_of(client), input=texts[begin : begin + BATCH])
        rows += [item.embedding for item in answer.data]
    return np.array(rows, dtype=np.float32)


class Library:
    """Pieces of files, found by what they mean."""

    def __init__(self, client: openai.OpenAI, pieces: list[Piece]):
        self.client, self.pieces = client, pieces
        self.rows = embed(client, [piece.text for piece in pieces])

    def nearest(self, question: str, k: int) -> list[tuple[float, Piece]]:
        """The k pieces whose embeddings have the largest cosine with the question's, the largest first."""
        cosines = self.rows @ embed(self.client, [question])[0]
        return [(float(cosines[i]), self.pieces[i]) for i in np.argsort(-cosines, kind="stable")[:k]]


def answer(client: openai.OpenAI, question: str, pieces: list[Piece]) -> str:
    excerpts = "\n\n".join(f"[{piece.file}, line {piece.line}]\n{piece.text}" for piece in pieces)
    message = {"role": "user", "content": PROMPT.format(excerpts=excerpts, question=question)}
    reply = client.chat.completions.create(model=model_of(client), messages=[message], temperature=0, max_tokens=400)
    return reply.choices[0].message.content or ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=pathlib.Path, nargs="+", metavar="FILE")
    parser.add_argument("-q", "--question", required=True)
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1", help="of the model that answers")
    parser.add_argument("--embedding-url", help="of the model that embeds (default: the same)")
    parser.add_argument("--prefix", default="", help="what the embedding model wants before a question")
    parser.add_argument("-k", type=int, default=4, help="pieces that the answer is made from (default: 4)")
    arguments = parser.parse_args()
    key = os.environ.get("LLM_API_KEY", "none")
    chat = openai.OpenAI(base_url=arguments.url, api_key=key)
    embedder = openai.OpenAI(base_url=arguments.embedding_url or arguments.url, api_key=key)
    library = Library(embedder, [piece for file in arguments.files for piece in pieces_of(file)])
    found = library.nearest(arguments.prefix + arguments.question, arguments.k)
    for cosine, piece in found:
        print(f"{cosine:.3f}  {piece.file}:{piece.line}")
    print("\n" + answer(chat, arguments.question, [piece for _, piece in found]))


if __name__ == "__main__":
    main()
