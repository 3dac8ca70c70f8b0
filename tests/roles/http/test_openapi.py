"""The documents describe what each role answers, in OpenAPI that is valid."""

from __future__ import annotations

import json

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from wakugumi.core.access.decide import Right
from wakugumi.roles.http.openapi import document
from wakugumi.roles.http.page_table import ROLES, pages_of


@pytest.mark.parametrize("role", ROLES)
def test_a_document_is_valid_openapi(role: str) -> None:
    OpenAPIV31SpecValidator(json.loads(document(role))).validate()


@pytest.mark.parametrize("role", ROLES)
def test_every_operation_has_a_name_of_its_own(role: str) -> None:
    told = json.loads(document(role))
    names = [operation["operationId"] for path in told["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names) == len(pages_of(role))


@pytest.mark.spec("O1")
@pytest.mark.parametrize("role", ROLES)
def test_every_operation_tells_which_right_it_needs_and_how_it_is_proven(role: str) -> None:
    told = json.loads(document(role))
    schemes = told["components"]["securitySchemes"]
    kinds = {name: scheme.get("scheme", scheme["type"]) for name, scheme in schemes.items()}
    assert sorted(kinds.values()) == ["basic", "bearer", "mutualTLS"]
    for page in pages_of(role):
        operation = told["paths"][page.path][page.method.lower()]
        if page.need is Right.OPEN:
            assert operation["security"] == []
            assert "401" not in operation["responses"]
        else:
            assert operation["security"] == [*({name: [page.need.value]} for name in schemes), {}]
            assert f"`{page.need.value}`" in operation["description"]
            assert "WWW-Authenticate" in operation["responses"]["401"]["headers"]
        assert "`denied`" in operation["responses"]["403"]["description"]
