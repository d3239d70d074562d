"""What deft.torch.compile() and torch.compile(backend="deft", options=...) may be told."""

import dataclasses
import difflib

PRECISIONS = ("as given", "bf16", "f16")


@dataclasses.dataclass(frozen=True)
class Options:
    # Products, convolutions and attention of f32 tensors: as given, or rounded to "bf16" or "f16" with f32 results.
    precision: str = "as given"
    # A promise that weights never change after the first call, so that no call looks at them. Training ignores it.
    freezing: bool = False
    # For how many sizes of the inputs a graph keeps a plan; the one that was not used for the longest time goes first.
    plans: int = 16

    def __post_init__(self):
        if self.precision not in PRECISIONS:
            known = ", ".join(map(repr, PRECISIONS))
            raise ValueError(f"deft.torch: found precision={self.precision!r}, expected one of {known}")
        if not isinstance(self.freezing, bool):
            raise ValueError(f"deft.torch: found freezing={self.freezing!r}, expected True or False")
        if isinstance(self.plans, bool) or not isinstance(self.plans, int) or self.plans < 1:
            raise ValueError(f"deft.torch: found plans={self.plans!r}, expected a whole number from 1 on")


NAMES = [f.name for f in dataclasses.fields(Options)]


def check_names(options, names=NAMES):
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1, 0)
            raise ValueError(f"deft.torch: found an option {name!r}, expected one of {', '.join(names)}"
                             + (f"; the nearest is {near[0]!r}" if near else ""))


def read(options):
    """The options in a dict."""
    check_names(options or {})
    return Options(**(options or {}))
