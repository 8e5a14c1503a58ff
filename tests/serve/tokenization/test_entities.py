"""Entities against transformers' own pipeline, on random logits and real tokenizers."""

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast
from transformers.pipelines.token_classification import (
    AggregationStrategy,
    TokenClassificationPipeline,
)

from serve.tokenization.entities import Aggregation, EntityReader
from serve.tokenization.word_spans import WordSpanFinder

AGGREGATIONS: tuple[Aggregation, ...] = ("none", "simple", "first", "average", "max")
LABEL_SETS = (
    ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    ("I-PER", "O", "B-PER"),
    ("NOUN", "VERB", "O", "X-Y", "B-", "I-O"),
    ("PER", "B-PER", "LOC"),
)
CORPUS = (
    "Angela Merkel visited New York City in 2019, didn't she?",
    "Müller-Lüdenscheidt  wohnt\tin Köln (am Rhein); naïve café ☕ résumé.",
    "東京 is Tokyo. U.S.A.! hello   world -- a/b <unk> [UNK] [SEP] @home",
    " leading space and trailing space ",
    "x",
    "zzzzqqqq 🎬🎬 unknownness supercalifragilistic",
)


def word_piece() -> Tokenizer:
    """Lower-cases and strips accents, as BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=110, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([text.lower() for text in CORPUS[:4]], trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def byte_level(add_prefix_space: bool) -> Tokenizer:
    """As RoBERTa's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS[:4], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def unigram() -> Tokenizer:
    """As XLM-RoBERTa's."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS[:4], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def without_decoder() -> Tokenizer:
    tokenizer = word_piece()
    tokenizer.decoder = None  # type: ignore[assignment]
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "word pieces": word_piece,
    "word pieces, no decoder": without_decoder,
    "bytes": lambda: byte_level(add_prefix_space=False),
    "bytes, space first": lambda: byte_level(add_prefix_space=True),
    "unigram": unigram,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param]()


def pipeline(tokenizer: Tokenizer, labels: tuple[str, ...]) -> TokenClassificationPipeline:
    """Return transformers' pipeline without a model: what comes after the logits needs none."""
    unknown = "[UNK]" if tokenizer.token_to_id("[UNK]") is not None else "<unk>"
    theirs = TokenClassificationPipeline.__new__(TokenClassificationPipeline)
    theirs.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unknown)
    theirs.model = SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(labels))))
    return theirs


def expected(
    theirs: TokenClassificationPipeline, text: str, logits: np.ndarray, aggregation: Aggregation
) -> list[dict[str, Any]]:
    encoded = theirs.tokenizer(
        text, return_tensors="pt", return_special_tokens_mask=True, return_offsets_mapping=True
    )
    import torch

    outputs = {
        "logits": torch.from_numpy(logits)[None],
        "sentence": text,
        "input_ids": encoded["input_ids"],
        "offset_mapping": encoded["offset_mapping"],
        "special_tokens_mask": encoded["special_tokens_mask"],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "does not support real words"
        return theirs.postprocess([outputs], AggregationStrategy(aggregation))


def found(
    tokenizer: Tokenizer,
    labels: tuple[str, ...],
    text: str,
    logits: np.ndarray,
    aggregation: Aggregation,
) -> list[dict[str, Any]]:
    """Return our entities in their words."""
    finder = WordSpanFinder(tokenizer)
    encoding = tokenizer.encode(text)
    counted = np.array(encoding.special_tokens_mask) == 0
    word_spans = finder.of_text(text, encoding)
    entities = EntityReader(labels, finder).read(logits, counted, word_spans, aggregation)
    key = "entity" if aggregation == "none" else "entity_group"
    told = []
    for entity in entities:
        assert entity.span is not None
        start, end = entity.span
        one = {key: entity.label, "score": entity.score, "word": entity.word}
        told.append(one | {"start": start, "end": end})
        if aggregation == "none":
            told[-1]["index"] = entity.tokens[0]
            assert entity.tokens[1] == entity.tokens[0] + 1
    return told


def texts(generator: np.random.Generator) -> list[str]:
    """Return the corpus, and words of it thrown together with odd things between them."""
    words = " ".join(CORPUS).split()
    between = (" ", "  ", "", "-", ", ", "\n")
    mixed = [
        "".join(str(generator.choice(words)) + str(generator.choice(between)) for _ in range(size))
        for size in (3, 12, 40)
    ]
    return [*CORPUS, *mixed, "", " "]


def logits_of(generator: np.random.Generator, shape: tuple[int, int]) -> list[np.ndarray]:
    """Return random logits, and logits with ties."""
    random = generator.normal(0, 2, shape)
    # Runs of one kind, which random labels seldom are.
    random[generator.random(shape[0]) < 0.5, -1] += 4
    return [random.astype(np.float32), generator.integers(0, 2, shape).astype(np.float32)]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("labels", LABEL_SETS, ids=str)
def test_entities_are_those_of_the_pipeline(
    tokenizer: Tokenizer, labels: tuple[str, ...], aggregation: Aggregation
) -> None:
    theirs = pipeline(tokenizer, labels)
    generator = np.random.default_rng(0)
    num_entities = 0
    for text in [text for _ in range(4) for text in texts(generator)]:
        for logits in logits_of(generator, (len(tokenizer.encode(text)), len(labels))):
            wanted = expected(theirs, text, logits, aggregation)
            ours = found(tokenizer, labels, text, logits, aggregation)
            scores = [[entity.pop("score") for entity in list_] for list_ in (ours, wanted)]
            assert ours == wanted, text
            np.testing.assert_allclose(*scores, rtol=1e-5)
            num_entities += len(ours)
    assert num_entities > 100


def test_a_certain_no_of_minus_infinity_is_as_good_as_any_other() -> None:
    tokenizer, labels = word_piece(), LABEL_SETS[0]
    logits = np.full((len(tokenizer.encode("hello")), len(labels)), -np.inf, np.float32)
    logits[:, 1] = 3
    (entity,) = found(tokenizer, labels, "hello", logits, "first")
    assert (entity["entity_group"], entity["score"]) == ("PER", 1)


def test_token_ids_have_places_but_no_spans() -> None:
    tokenizer, labels = word_piece(), LABEL_SETS[0]
    finder = WordSpanFinder(tokenizer)
    ids = tokenizer.encode("new york").ids
    counted = np.array([False, *[True] * (len(ids) - 2), False])
    logits = np.zeros((len(ids), len(labels)), np.float32)
    logits[:, 2] = 5
    word_spans = finder.of_ids(ids)
    (entity,) = EntityReader(labels, finder).read(logits, counted, word_spans, "simple")
    assert (entity.label, entity.tokens, entity.span) == ("PER", (1, len(ids) - 1), None)
    assert entity.word == "new york"
