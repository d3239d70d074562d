"""The version."""

from . import __version__

cuda = None
hip = None
