"""/docs: the OpenAPI document as one page that needs nothing from any other host, and no script."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from gateway.api.answers import Answer

_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
)
_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2024;background:#fff}
h1,h2,h3{line-height:1.2}h2{margin-top:3rem;border-top:1px solid #ccd;padding-top:1.5rem}
code,pre{font:14px/1.5 ui-monospace,monospace;background:#f2f4f7;border-radius:4px}code{padding:.1em .3em}
pre{padding:1rem;overflow:auto}table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #dde}
.method{display:inline-block;min-width:3.2rem;font-weight:700;color:#0b5}.kind{color:#567;font-size:.9em}
@media(prefers-color-scheme:dark){
body{background:#15181c;color:#e6e8eb}code,pre{background:#23272e}th,td{border-color:#333}}
"""
_EXAMPLE: Final = """curl -X POST http://127.0.0.1:8080/v1/messages \\
  -H 'Authorization: Bearer sg_...' -H 'Idempotency-Key: order-4711' -H 'Content-Type: application/json' \\
  -d '{"to": "+393331234567", "from": "ACME", "text": "Your code is 123456", "class": "otp"}'"""


def answer(document: dict[str, Any]) -> Answer:
    """The page as an answer."""
    return Answer(200, _HEADERS, page(document).encode("utf-8"))


def page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    info = document["info"]
    calls = [
        _call(method, path, call) for path, methods in document["paths"].items() for method, call in methods.items()
    ]
    schemas = [_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    title = escape(info["title"])
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{title} API</title><style>{_STYLE}</style>"
        f"<h1>{title} API</h1><p>{escape(info['description'])}</p>"
        f"<p>Send <code>Authorization: Bearer &lt;key&gt;</code> with every call. "
        f"The machine-readable form of this page is <a href=openapi.json>openapi.json</a>.</p>"
        f"<pre>{escape(_EXAMPLE)}</pre>"
        f"{''.join(calls)}<h2>Objects</h2>{''.join(schemas)}</html>"
    )


def _call(method: str, path: str, call: dict[str, Any]) -> str:
    parts = [
        f"<h2 id={call['operationId']}>{escape(call['summary'])}</h2>",
        f"<p><span class=method>{method.upper()}</span> <code>{escape(path)}</code></p>",
        f"<p>{_text(call['description'])}</p>",
    ]
    if call.get("parameters"):
        rows = [(p["name"], p["in"], _kind(p["schema"]), p.get("description", "")) for p in call["parameters"]]
        parts.append(_table(("parameter", "in", "type", ""), rows))
    if "requestBody" in call:
        parts.append(f"<p>Takes {_kind(_content(call['requestBody']))}.</p>")
    rows = [
        (status, "", _kind(_content(response)) if "content" in response else "", response["description"])
        for status, response in call["responses"].items()
    ]
    parts.append(_table(("status", "", "body", ""), rows))
    return "".join(parts)


def _schema(name: str, schema: dict[str, Any]) -> str:
    head = f"<h3 id=schema-{escape(name)}>{escape(name)}</h3><p>{_text(schema.get('description', ''))}</p>"
    members: dict[str, Any] = dict(schema.get("properties", {}))
    required = set(schema.get("required", ()))
    for part in schema.get("allOf", ()):
        if "$ref" in part:
            head += f"<p>All of {_kind(part)}, and:</p>"
        members |= part.get("properties", {})
        required |= set(part.get("required", ()))
    rows = [
        (member, "required" if member in required else "", _kind(shape), _description(shape))
        for member, shape in members.items()
    ]
    return head + _table(("member", "", "type", ""), rows)


def _content(holder: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = next(iter(holder["content"].values()))["schema"]
    return schema


def _description(shape: dict[str, Any]) -> str:
    if "description" in shape:
        return str(shape["description"])
    return next((str(one["description"]) for one in shape.get("anyOf", ()) if "description" in one), "")


def _kind(shape: dict[str, Any]) -> str:
    """The type of a schema as HTML."""
    if "$ref" in shape:
        name = escape(str(shape["$ref"]).rpartition("/")[2])
        return f"<a href=#schema-{name}>{name}</a>"
    if "anyOf" in shape:
        return " or ".join(_kind(one) for one in shape["anyOf"])
    if "enum" in shape:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in shape["enum"])
    if shape.get("type") == "array":
        return f"array of {_kind(shape['items'])}"
    bounds = [
        f"{word} {shape[key]}"
        for key, word in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("maxLength", "up to"),
            ("maxItems", "up to"),
            ("default", "default"),
        )
        if key in shape
    ]
    return escape(" ".join([str(shape.get("format", shape.get("type", "any"))), *bounds]))


def _text(text: str) -> str:
    """Text with its `code` marked up."""
    pieces = escape(text).split("`")
    return "".join(piece if place % 2 == 0 else f"<code>{piece}</code>" for place, piece in enumerate(pieces))


def _table(head: tuple[str, ...], rows: list[tuple[str, str, str, str]]) -> str:
    if not rows:
        return ""
    heads = "".join(f"<th>{escape(cell)}" for cell in head)
    body = "".join(
        f"<tr><td><code>{escape(name)}</code><td class=kind>{escape(where)}<td class=kind>{kind}<td>{_text(text)}"
        for name, where, kind, text in rows
    )
    return f"<table><tr>{heads}{body}</table>"
