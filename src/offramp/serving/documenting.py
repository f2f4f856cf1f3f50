"""The OpenAPI description: what bodies and errors look like, and a page of it that needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from offramp.serving.schemas import Problem

WHY = {
    401: "The API key is wrong or missing.",
    404: "There is no such model.",
    408: "The request did not come in in time.",
    413: "Too many bytes, or too many texts.",
    415: "The body is not said to be JSON.",
    422: "The request cannot be answered as it is: the error says why.",
    429: "Busy: try again after as many seconds as Retry-After says.",
    503: "Starting, or shutting down.",
    504: "The deadline passed.",
}
REFERENCE = "#/components/schemas/{model}"
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid; border-radius: 0.25rem; }
h2 { margin-top: 2.5rem; font-size: 1.1rem; }
"""
CSP = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Of a route, as FastAPI wants them."""
    return {status: {"model": Problem, "description": WHY[status]} for status in statuses}


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """The body of a route that reads it by itself."""
    schema = {"$ref": REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def document(app: FastAPI, bodies: Sequence[type[BaseModel]], with_key: bool, free: Sequence[str]) -> None:
    """Describe the application, its hand-read bodies and its key included."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            about = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
            )
            _, found = models_json_schema([(body, "validation") for body in bodies], ref_template=REFERENCE)
            components = about.setdefault("components", {})
            components.setdefault("schemas", {}).update(found["$defs"])
            _without_fastapis_own(about)
            if with_key:
                components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                for path, methods in about["paths"].items():
                    for operation in () if path in free else methods.values():
                        operation["security"] = [{"key": []}]
                        operation["responses"]["401"] = {
                            "description": WHY[401],
                            "content": {"application/json": {"schema": {"$ref": REFERENCE.format(model="Problem")}}},
                        }
            app.openapi_schema = about
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _without_fastapis_own(about: dict[str, Any]) -> None:
    """Its 422 of routes that declare none: nobody is answered in that shape."""
    for operation in (operation for methods in about["paths"].values() for operation in methods.values()):
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        about["components"]["schemas"].pop(name, None)


def docs_page(about: dict[str, Any]) -> str:
    """The description as a page for people: each path, what it takes, and which statuses it answers with."""
    title = escape(f"{about['info']['title']} {about['info']['version']}")
    said = _paragraphs(about["info"]["description"])
    parts = [f"<h1>{title}</h1>{said}<p>As JSON: <a href='openapi.json'>openapi.json</a></p>", *_operations(about)]
    parts.append("<h2>Schemas</h2>")
    parts += (_folded(name, schema) for name, schema in sorted(about["components"]["schemas"].items()))
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><title>{title}</title>"
    return f"<!doctype html><html lang=en>{head}<style>{STYLE}</style><body>{''.join(parts)}</body></html>"


def _operations(about: dict[str, Any]) -> Iterator[str]:
    for path, methods in about["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code> {escape(operation['summary'])}</h2>"
            yield _paragraphs(operation.get("description", ""))
            if "requestBody" in operation:
                name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                yield _folded("What is sent", about["components"]["schemas"][name])
            statuses = (
                f"<li><code>{status}</code> {escape(answer['description'])}</li>"
                for status, answer in sorted(operation["responses"].items())
            )
            yield f"<ul>{''.join(statuses)}</ul>"


def _paragraphs(text: str) -> str:
    """With what stands in backticks as code."""
    parts = [re.sub("`(.+?)`", r"<code>\1</code>", escape(part)) for part in text.strip().split("\n\n") if part]
    return "".join(f"<p>{part}</p>" for part in parts)


def _folded(name: str, schema: Any) -> str:
    shown = escape(json.dumps(schema, indent=1, ensure_ascii=False))
    return f"<details><summary>{escape(name)}</summary><pre>{shown}</pre></details>"
