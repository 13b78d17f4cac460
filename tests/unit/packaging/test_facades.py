# SPDX-License-Identifier: Apache-2.0
"""`lakeward.model` and `lakeward.spi` give each name from the module that defines it, and load no other module."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["lakeward.model", "lakeward.spi"])
def test_each_name_comes_from_the_module_that_defines_it(package: str) -> None:
    facade = import_module(package)
    names = vars(facade)["_NAMES"]
    modules = {name: module for module, listed in names.items() for name in listed.split()}
    assert len(modules) == sum(len(listed.split()) for listed in names.values())
    for name, module in modules.items():
        assert getattr(facade, name) is getattr(import_module(f"{package}.{module}"), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Bukket'"):
        vars(import_module("lakeward.model"))["__getattr__"]("Bukket")
