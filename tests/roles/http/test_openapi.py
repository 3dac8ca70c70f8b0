"""The documents describe what each role answers, in OpenAPI that is valid."""

from __future__ import annotations

import json

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

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
