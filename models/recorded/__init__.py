"""What every exit of a model said of some texts: the one thing that all measuring starts from.

`recorded(source, texts, labels)` runs texts through all exits, once. The source is a bundle, run as
the server runs it, or a model in PyTorch: of a folder, of another system's checkpoint, or in
training. It returns a `Recorded`: `taken(rule)` says where a rule lets each text leave, and
`signals(rule)` what it compares; `answers` are what the exits answer, and `agrees(taken)` says
which texts get the same answer as at full depth. Only this package says when two answers to a text
are the same: of a tagger, if they are the same entities, as the server finds them.
"""

from models.recorded.record import inputs, recorded
from models.recorded.recorded import Recorded
from models.recorded.sources import BundleSource, Source, TorchSource

__all__ = ["BundleSource", "Recorded", "Source", "TorchSource", "inputs", "recorded"]
