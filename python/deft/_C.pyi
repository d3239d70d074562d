"""Deft's library. The names for users are in the package deft."""

from typing import Any

def __getattr__(name: str) -> Any: ...
