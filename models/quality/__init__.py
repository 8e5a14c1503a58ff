"""Measuring models: record, choose a rule, certify it, report.

There is one way, and each step of it has its nouns:

* Record. A `Source` is a model that texts can be run through: a bundle as the server runs it, or a
  model in PyTorch. `recorded` runs texts through all exits of a source, once, and returns a
  `Recorded`: what each exit said, and what would have been right.
* Try. `Recorded.taken` says where a rule lets each text leave. On labelled texts a `Trial` makes a
  `Point` of each rule: its metric, its `Cost`s, its exits. An `Analysis` is a `Model` on one data
  file: the points of all families of rules, their intervals and their gains.
* Choose and certify. `Losses` are what leaving early costs each text. A `RulePath` has rules from
  strict to loose. `Tried` is a path on some texts: where each of its rules lets them leave, and
  with which losses. The texts of a `Sample` that tune choose the path, the others certify it; what
  they certify becomes a `Ladder` of the bundle's calibration.
* Report. A page is a list of blocks of Markdown and of `Picture`s.

`cli` has the commands `offramp calibrate`, `recommend` and `evaluate`.
"""
