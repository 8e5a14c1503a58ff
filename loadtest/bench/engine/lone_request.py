"""Bar 6: what the engine adds to a request that is alone in it."""

import numpy as np

from loadtest.bench.chain import until_exits_s
from loadtest.bench.engine.bars import Bar, Report, at_most
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine_driver import driving, row_of
from loadtest.bench.inputs import padded, random_texts
from loadtest.bench.loaded_bundle import LoadedBundle
from serve.rules import EntropyRule

_WHAT = "p50 of a lone request through the engine - bare segments"
_MOST_MS = 0.3
# The mean of SST-2.
_TOKENS = 25
_WARM_UP = 3


def lone_request(loaded: LoadedBundle, budget: Budget, report: Report) -> list[Bar]:
    """Run the same text through the bare segments and through the engine, in turns.

    The engine's time is from submission to outcome, under a rule that is evaluated at every exit
    and never satisfied. The bare segments are called one by one.
    """
    report(f"{loaded.precision}: a lone request through the engine")
    text = random_texts([_TOKENS], loaded.vocabulary)[0]
    inputs, chain = padded([text], loaded.shape.pad_id), loaded.chain
    times_s = []
    with driving(chain, loaded.shape) as driver:
        for _ in range(budget.lone_turns + _WARM_UP):
            bare_s = until_exits_s(chain, inputs)[-1]
            engine_s = driver.run([row_of(loaded.shape, text, EntropyRule(threshold=0))], 1)
            times_s.append((bare_s, engine_s))
    bare_ms, engine_ms = 1e3 * np.median(times_s[_WARM_UP:], axis=0)
    case = f"{loaded.precision} 1 x {_TOKENS}"
    return [at_most(_WHAT, case, float(engine_ms - bare_ms), _MOST_MS, "ms")]
