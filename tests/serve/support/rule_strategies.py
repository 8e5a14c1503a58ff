"""Hypothesis strategies: exit rules that a model of some task can follow."""

from typing import Any

from hypothesis import strategies as st

from serve.rules import EXIT_RULE, ExitRule, compile_rule
from serve.rules.traits import Task, Traits

EXITS = (2, 3, 5, 6, 8)
LABELS = ("a", "b", "c")
DEPTH = EXITS[-1]

shares = st.floats(0, 1)
bounds = st.fixed_dictionaries(
    {}, optional={"min_layer": st.integers(1, DEPTH), "max_layer": st.integers(2, DEPTH)}
)


def traits_of(task: Task) -> Traits:
    """Return a model of five exits and three labels, or one value."""
    return Traits(EXITS, LABELS if task != "regression" else ("value",), task, learned=True)


def per_exit(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    """Return one number, or one per exit."""
    return numbers | st.lists(numbers, min_size=len(EXITS), max_size=len(EXITS))


reductions = st.sampled_from(
    [
        {},
        {"reduce": "mean"},
        {"reduce": "max"},
        *({"reduce": "quantile", "quantile": q} for q in (0.07, 1 / 3, 0.5, 0.9)),
    ]
)


def kind(name: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Return documents of one rule without layer bounds."""
    return st.fixed_dictionaries({"rule": st.just(name), **fields})


FIXED = [kind("never"), kind("layer", layer=st.sampled_from(EXITS))]
LEARNED = kind("learned", threshold=per_exit(shares))
CERTAIN = [
    kind("entropy", threshold=per_exit(st.floats(0, 0.69))),
    kind("normalized_entropy", threshold=per_exit(shares)),
    kind("confidence", threshold=per_exit(shares), fallback=st.just("last")),
    kind("confidence", threshold=per_exit(st.floats(0.8, 1)), fallback=st.just("most_confident")),
    kind("margin", threshold=per_exit(shares)),
    kind(
        "confident_patience",
        threshold=per_exit(st.floats(0.2, 1)),
        patience=st.integers(1, 4),
        ensemble=st.sampled_from(["none", "run", "all"]),
    ),
]
PATIENCE = kind("patience", patience=st.integers(1, 6))
weights = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0, 3.0]), min_size=5, max_size=5)
VOTING = [
    kind("voting", votes=st.integers(1, 5)),
    kind("voting", votes=st.sampled_from([0.3, 0.5, 1.0, 2.5]), weights=weights),
    kind(
        "voting",
        share=st.floats(0.1, 2),
        exponent=st.sampled_from([0.0, 0.5, 1.0, 1.5]),
        weights=st.none() | weights,
    ),
]
CLASSES = kind("classes", thresholds=st.dictionaries(st.sampled_from(LABELS), shares, min_size=1))
DECISION = kind(
    "decision",
    leave_above=st.none() | st.dictionaries(st.sampled_from(LABELS), shares, min_size=1),
    leave_below=st.none() | st.dictionaries(st.sampled_from(LABELS), shares, min_size=1),
)


def rules_of(task: Task) -> st.SearchStrategy[ExitRule]:
    """Return valid rules of every kind that the task knows."""
    documents: dict[Task, st.SearchStrategy[dict[str, Any]]] = {
        "single_label": st.one_of(*FIXED, *CERTAIN, *VOTING, LEARNED, PATIENCE, CLASSES, DECISION),
        "multi_label": st.one_of(*FIXED, *reduced(CERTAIN), LEARNED, PATIENCE, DECISION),
        "token": st.one_of(*FIXED, *reduced(CERTAIN), LEARNED, PATIENCE, DECISION),
        "regression": st.one_of(
            *FIXED,
            LEARNED,
            kind("patience", patience=st.integers(1, 4), tolerance=st.sampled_from([0.5, 1.0, 2])),
        ),
    }
    return (
        st.tuples(documents[task], bounds)
        .filter(lambda parts: fits(parts[0] | parts[1], task))
        .map(lambda parts: EXIT_RULE.validate_python(parts[0] | parts[1]))
    )


def reduced(kinds: list[st.SearchStrategy[dict[str, Any]]]) -> list[Any]:
    """Return the rules with ways of reducing several signals to one."""
    return [st.tuples(k, reductions).map(lambda parts: parts[0] | parts[1]) for k in kinds]


def fits(document: dict[str, Any], task: Task) -> bool:
    """Tell whether the rule does not contradict itself or the model."""
    try:
        compile_rule(EXIT_RULE.validate_python(document), traits_of(task))
    except ValueError:
        return False
    except Exception as error:
        return error.__class__.__name__ != "InvalidRule"
    return True
