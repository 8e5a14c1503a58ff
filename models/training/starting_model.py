"""What a run starts from: an encoder with new heads, or a classifier with its own head as the last.

A classifier's own head makes full depth begin as the classifier itself.
"""

from collections.abc import Sequence

from models import checkpoints
from models.data.label_ids import are_ids, label_order
from models.data.notes import note
from models.errors import TrainingFailed, UnusableCheckpoint
from models.heads import AnyHeadConfig, AttentionHeadConfig
from models.multi_exit import MultiExitModel, new_head
from models.training.error_targets import share_estimate, with_estimate
from models.training.job import ModelChoice
from serve.rules.traits import Task, listed


def read_classifier(choice: ModelChoice) -> MultiExitModel | None:
    """Return the classifier in the encoder's folder; None, and a note, if there is none.

    Raises:
        TrainingFailed: there is none, or one with exits, and the recipe needs a classifier.
    """
    folder = choice.encoder
    if choice.layers:
        _say_anew("--layers cuts the encoder")
        return None
    try:
        model = checkpoints.load(folder).model
    except (ValueError, OSError, UnusableCheckpoint) as error:
        if choice.frozen:
            raise TrainingFailed(str(error)) from error
        _say_anew(f"{folder} holds no classifier that `offramp inspect` can read")
        return None
    if choice.frozen and choice.task not in (None, model.exit_config.task):
        raise TrainingFailed(
            f"--task {choice.task}: the classifier's task is {model.exit_config.task}"
        )
    if len(model.exits) == 1:
        return model
    layers = listed(model.exits)
    if choice.frozen:
        raise TrainingFailed(
            f"{folder} has exits at {layers} already; `offramp export` takes it as it is"
        )
    _say_anew(f"{folder} has exits at {layers} already, which are not taken over")
    return None


def starting_model(
    choice: ModelChoice, classifier: MultiExitModel | None, task: Task, labels: list[str]
) -> MultiExitModel:
    """Return the untrained model.

    Args:
        choice: names encoder, exits and the shape of new heads.
        classifier: in the encoder's folder, if there is one; it is changed.
        task: of the data.
        labels: the data's, by id. Where they are ids only, a classifier's own names are taken.

    Raises:
        TrainingFailed: exits, task or labels do not fit, or the encoder cannot be used.
    """
    if task == "token" and choice.head and choice.head.pooling != "tokens":
        attends = isinstance(choice.head, AttentionHeadConfig)
        what = "--head attention" if attends else f"pooling {choice.head.pooling}"
        raise TrainingFailed(
            f"{what}: in token classification every token has an answer of its own; leave it out"
        )
    model = _built(choice, classifier, task, labels)
    if choice.objective.learn_error:
        share_estimate(model)
    return model


def _built(
    choice: ModelChoice, classifier: MultiExitModel | None, task: Task, labels: list[str]
) -> MultiExitModel:
    try:
        if classifier:
            return _with_exits(classifier, choice, task, labels)
    except _OtherAnswers as error:
        if choice.frozen:
            raise
        _say_anew(str(error))
    exits, layers = choice.exits, choice.layers
    exits = (layers,) if layers and not exits else exits
    head = _shape(choice, choice.head or new_head(task))
    try:
        return MultiExitModel.from_encoder(choice.encoder, labels, exits, head, task, layers)
    except (ValueError, OSError) as error:
        raise TrainingFailed(f"{choice.encoder}: {error}") from error


def _shape(choice: ModelChoice, head: AnyHeadConfig) -> AnyHeadConfig:
    return with_estimate(head) if choice.objective.learn_error else head


class _OtherAnswers(TrainingFailed):
    """A classifier answers something else than the data's labels."""


def _with_exits(
    classifier: MultiExitModel, choice: ModelChoice, task: Task, labels: list[str]
) -> MultiExitModel:
    order = _order(classifier, choice, task, labels)
    own = classifier.exit_config
    exits = choice.exits or tuple(range(1, classifier.exits[-1] + 1))
    heads = choice.head or new_head(task), own.heads[-1]
    shapes = dict(zip(("head", "last_head"), (_shape(choice, head) for head in heads), strict=True))
    model = MultiExitModel(classifier.encoder, own.model_copy(update={"exits": exits} | shapes))
    head = classifier.head(0)
    head.config = model.head(-1).config
    head.classifier.weight.data = head.classifier.weight.data[order]
    head.classifier.bias.data = head.classifier.bias.data[order]
    model.heads[-1] = head
    rename(model, classifier.labels if are_ids(labels) else labels)
    is_it = "stays" if choice.frozen else "begins as"
    warning = "" if choice.frozen else " Training moves it; --recipe frozen does not."
    note(
        f"the last exit's head is {choice.encoder.resolve().name}'s own, so that full depth "
        f"{is_it} that classifier; the earlier heads start from random numbers.{warning}"
    )
    return model


def _order(
    classifier: MultiExitModel, choice: ModelChoice, task: Task, labels: list[str]
) -> list[int]:
    """Return the classifier's id of each label."""
    own = classifier.exit_config.task
    if own != task:
        raise _OtherAnswers(f"the task of {choice.encoder} is {own}, not {task}")
    order = [0] if task == "regression" else label_order(classifier.labels, labels)
    if order is None:
        raise _OtherAnswers(
            f"the labels of {choice.encoder} are {listed(classifier.labels)}, not {listed(labels)}"
        )
    return order


def _say_anew(reason: str) -> None:
    note(f"all heads start from random numbers, the last exit's too: {reason}")


def rename(model: MultiExitModel, labels: Sequence[str]) -> None:
    """Give a model's labels other names, as many."""
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: i for i, label in enumerate(labels)}
