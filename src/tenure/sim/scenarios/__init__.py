"""Scenarios that come with Tenure."""
