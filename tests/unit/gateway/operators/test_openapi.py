"""The document of `/admin/*` names exactly the calls that exist."""

from __future__ import annotations

import re
from typing import Any, cast

from gateway.operators import openapi
from gateway.operators.admin import admin_routes
from gateway.operators.desk import Desk


def test_every_admin_call_is_described() -> None:
    routes = admin_routes(cast(Desk, None))
    served = {
        (method, "/admin" + re.sub(r":\w+}", "}", route.path))
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }
    described = {
        (method.upper(), path)
        for path, calls in openapi.document()["paths"].items()
        for method in calls
        if method != "parameters"
    }
    assert described == served


def test_every_reference_leads_somewhere() -> None:
    document = openapi.document()

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(one) for one in node.values()))
        if isinstance(node, list):
            return set().union(*(references(one) for one in node))
        return set()

    found = references(document["paths"]) | references(document["components"])
    assert {name.rpartition("/")[2] for name in found} <= set(document["components"]["schemas"])
