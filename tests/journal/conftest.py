"""Tests of this folder that take `restored` run on each engine, as those of tests/formats do."""

from tests.formats.conftest import pytest_generate_tests, restored

__all__ = ["pytest_generate_tests", "restored"]
