"""What a server is without any of this: FastAPI around transformers' pipeline, as its documentation has it.

    python benchmarks/serving_plain.py MODEL_FOLDER PORT threads|loop

`threads`: a plain function, which FastAPI runs in threads, several at a time. `loop`: an async one, one at a time.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline


class Asked(BaseModel):
    inputs: str


def main() -> None:
    folder, port, style = sys.argv[1:]
    classify = pipeline("text-classification", model=folder, device="cpu")
    app = FastAPI()

    def answer(asked: Asked) -> list[dict[str, Any]]:
        return list(classify(asked.inputs, truncation=True, max_length=128))

    async def answer_on_the_loop(asked: Asked) -> list[dict[str, Any]]:
        return answer(asked)

    app.post("/predict")(answer if style == "threads" else answer_on_the_loop)
    app.get("/health")(lambda: {"status": "ok"})
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
