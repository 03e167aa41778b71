"""The description of the interface is valid, and true of the answers."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("starlette")
from waifu2x.serve.app import Api
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import JobRecord, ResultInfo, SourceInfo, shown
from waifu2x.serve.openapi import document


def routes() -> set[tuple[str, str]]:
    service: Any = None
    found: list[Any] = Api(service).app().routes
    return {
        (route.path, method.lower())
        for route in found
        if route.path.startswith("/api/")
        for method in route.methods - {"HEAD"}
    }


def test_every_route_is_described_and_nothing_else() -> None:
    found = {
        (path, method)
        for path, methods in document()["paths"].items()
        for method in methods.keys() - {"parameters"}
    }
    assert found == routes()


def test_the_description_is_one_of_openapi() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(document())


def test_every_reference_is_there_and_every_name_once() -> None:
    text = str(document())
    names = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert names <= document()["components"]["schemas"].keys()
    operations = re.findall(r"'operationId': '(\w+)'", text)
    assert len(set(operations)) == len(operations) == len(routes())


def test_a_job_is_as_it_is_described() -> None:
    record = JobRecord(
        "0", 1, 1, 1, "picture", "done", "a.png", JobSettings(), 0.0,
        source=SourceInfo(1, 1, 1, "PNG", 1), result=ResultInfo("a-2x.png", 2, 2, 1, "png", 0.1),
    )  # fmt: skip
    job = shown(record, None, None)
    schemas = document()["components"]["schemas"]
    for name, value in {
        "Job": job,
        "Source": job["source"],
        "Result": job["result"],
        "Settings": job["settings"],
    }.items():
        assert value.keys() == schemas[name]["properties"].keys(), name
