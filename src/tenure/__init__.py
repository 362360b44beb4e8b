"""Tenure: long jobs that get time only while they prove that they advance."""

from __future__ import annotations

__version__ = "0.1.0"
