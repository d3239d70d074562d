"""Which frames are the user's: those of the script and of what lies beside it, not those of Python or of installed packages."""

import linecache
import os
import site
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_FRAMES = 200


def _foreign_folders():
    folders = [HERE, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    folders.append(site.getusersitepackages() if hasattr(site, "getusersitepackages") else None)
    found = {os.path.join(f, "") for folder in folders if folder for f in (folder, os.path.realpath(folder))}
    return tuple(sorted(found))


class Places:
    def __init__(self, script):
        self.script = os.path.abspath(script)
        self.folder = os.path.join(os.path.dirname(self.script), "")
        self._foreign = _foreign_folders()
        self._known = {self.script: True}

    def is_users(self, filename):
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self._decide(filename)
        return known

    def _decide(self, filename):
        if filename.startswith("<") or "site-packages" in filename or "dist-packages" in filename:
            return False
        path = os.path.abspath(filename)
        return not path.startswith(self._foreign) and os.path.exists(path)

    def site(self, depth=1):
        """(file, line) of the innermost frame of the user's, or None."""
        frame = self.frame(depth + 1)
        return (frame.f_code.co_filename, frame.f_lineno) if frame else None

    def frame(self, depth=1):
        frame = sys._getframe(depth)
        known = self._known
        for _ in range(MOST_FRAMES):
            if frame is None:
                return None
            name = frame.f_code.co_filename
            if known.get(name) or (name not in known and self.is_users(name)):
                return frame
            frame = frame.f_back
        return None

    def shown(self, filename):
        """Relative to the working folder where that is shorter."""
        try:
            relative = os.path.relpath(filename)
        except ValueError:
            return filename
        return filename if relative.startswith("..") else relative

    def text(self, place):
        """'train.py:12'"""
        return "{}:{}".format(self.shown(place[0]), place[1]) if place else "an unknown line"


def expression(place):
    """The source text of a line."""
    return linecache.getline(place[0], place[1]).strip() if place else ""
