"""Data files in any form: what they give, and what is refused with file and line."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.data.columns import Columns
from models.data.datasets import read_dataset, task_of
from models.data.examples import Example
from models.data.notes import DataNote
from models.data.unlabelled import read_unlabelled
from models.errors import UnusableData
from models.pretraining.rows import read_documents
from serve.rules.traits import Task
from tests.models.data.distributed_files import FILES, File

Write = Callable[..., Path]
SHARED = Path(__file__).parents[3].parent / "shared" / "data"


@pytest.mark.parametrize("file", FILES.values(), ids=FILES.keys())
def test_files_are_read_as_they_are_distributed(write_data: Write, file: File) -> None:
    path = write_data(file.name, file.lines)
    with warnings.catch_warnings(record=True, action="always") as told:
        assert task_of(path) == file.task
        found = read_dataset(path, file.task)
    assert found.labels == file.labels
    if file.examples:
        assert found.examples == file.examples
    notes = {str(each.message) for each in told}
    assert all(any(note in sentence for sentence in notes) for note in file.notes)
    assert len(notes) == len(file.notes)


@pytest.mark.parametrize("file", FILES.values(), ids=FILES.keys())
@pytest.mark.filterwarnings("ignore::models.data.notes.DataNote")
def test_their_texts_are_read_without_labels_too(write_data: Write, file: File) -> None:
    path = write_data(file.name, file.lines)
    texts = read_unlabelled(path)
    labelled = [(each.text_a, each.text_b) for each in read_dataset(path, file.task).examples]
    assert set(labelled) <= set(texts)


@pytest.mark.parametrize("name", ["mrpc", "rte", "stsb", "sst2", "agnews", "wnut17"])
def test_real_files_are_read_whole(name: str) -> None:
    path = SHARED / name / "dev.tsv"
    if not path.is_file():
        pytest.skip(f"{path} is not on this machine")
    rows = [line.split("\t") for line in path.read_text("utf-8").split("\n")[1:] if line.strip()]
    found = read_dataset(path, task_of(path)).examples
    if name == "wnut17":
        assert sum(len(each.label) for each in found) == len(rows)
    elif name == "agnews":  # a csv writer has quoted its texts
        assert len(found) == len(rows)
        assert not any('""' in each.text_a for each in found)
    else:
        assert [(e.text_a, e.text_b or "") for e in found] == [
            (first.strip(), second.strip()) for _, first, second in rows
        ]


@pytest.mark.filterwarnings("ignore::models.data.notes.DataNote")
@pytest.mark.parametrize(
    ("name", "lines", "first"),
    [
        ("d.tsv", ["label\ttext_a\ttext_b", '1\t"so , good\t', "0\tb\t"], ('"so , good', None, 1)),
        ("d.csv", ["sentence,label", '"so, ""good""",1', "bad,0"], ('so, "good"', None, 1)),
        ("d.csv", ['text,label\r\n"two\r\nlines",1\r\n\r\nbad,0\r'], ("two\r\nlines", None, 1)),
        ("d.csv", ["label, text", '1, "good, film"', "0, bad"], ("good, film", None, 1)),
        ("d.csv", ["label,text", "1,good,", "0,bad,"], ("good", None, 1)),
        ("d.csv", ["\ufeffLabel, Text", "1,good", "0,bad"], ("good", None, 1)),
        ("d.csv", ["text,label", f"{'a b ' * 50_000},1", "bad,0"], (("a b " * 50_000).strip(),
         None, 1)),
        ("d.tsv", ['"text"\t"label"', '"a ""b"""\t1', '"c"\t0'], ('a "b"', None, 1)),
        ("d.tsv", ["text\tlabel", '"so, good"\t1', "bad\t0"], ("so, good", None, 1)),
        ("d.tsv", ["text\tlabel", '"so, good"\t1', "well, bad\t0"], ('"so, good"', None, 1)),
        ("d.tsv", ["text\tlabel", f'"{"x" * 140_000} ""b"""\t1', "c\t0"], ("x" * 140_000 + ' "b"',
         None, 1)),
        ("d.tsv", ["label\tid\ttext", '1\t""\t"a ""b"""', '0\t7\tc'], ('a "b"', None, 1)),
        ("d.tsv", ['"Plants grow."\tGrowth "here".\tneutral', 'a\tb\tentails'],
         ('"Plants grow."', 'Growth "here".', 1)),
        ("d.csv", ["", ",,", "id,text,label", "7,a b,1", "", "8,b,0", ",,", ",,"],
         ("a b", None, 1)),
        ("d.csv", ["text,label", "a,\ufeff1\u200b", "b,0"], ("a", None, 1)),
        ("d.jsonl", ['{"text": "good", "label": 1}', "", '{"text": "b", "label": "0"}'], ("good",
         None, 1)),
        ("d.jsonl", ['{"text": "a", "label": ["y"]}', '{"text": "b", "label": ["n"]}'], ("a", None,
         1)),
        ("d.jsonl", ['{"text": "a\\u2028b\\n1,2", "label": 1.0}', '{"text": "b", "label": 0.0}'],
         ("a\u2028b\n1,2", None, 1)),
        ("d.json", ['{"text": "a", "text_pair": null, "label": true}',
         '{"text": "b", "label": false}'],
         ("a", None, 1)),
    ],
)  # fmt: skip
def test_every_format_is_read_by_its_own_rules(
    write_data: Write, name: str, lines: list[str], first: tuple[str, str | None, int]
) -> None:
    assert read_dataset(write_data(name, lines), "single_label").examples[0] == first


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        *((f"label,{a},{b}", (a, b)) for a, b in (
            ("text", "text_pair"), ("question", "sentence"), ("question1", "question2"),
            ("premise", "hypothesis"), ("sentence1", "sentence2"), ("#1 String", "#2 String"),
            ("text_a", "text_b"), ("sentence_A", "sentence_B"))),
        ("label,hypothesis,premise", ("premise", "hypothesis")),
        ("gold_label,review", ("review",)),
        ("label,Text", ("Text",)),
    ],
)  # fmt: skip
def test_no_second_text_is_dropped(write_data: Write, header: str, texts: tuple[str, ...]) -> None:
    names = header.split(",")
    rows = [[str(row), *(f"{name} {row}" for name in names[1:])] for row in (0, 1)]
    expected = Example(*([f"{name} 0" for name in texts] + [None])[:2], 0)  # type: ignore[arg-type]
    for suffix, lines in {
        "csv": [header, *(",".join(row) for row in rows)],
        "tsv": [line.replace(",", "\t") for line in (header, *(",".join(row) for row in rows))],
        "jsonl": [json.dumps(dict(zip(names, row, strict=True))) for row in rows],
    }.items():
        path = write_data(f"d.{suffix}", lines)
        assert read_dataset(path, "single_label").examples[0] == expected
        assert read_unlabelled(path)[0] == expected[:2]


@pytest.mark.parametrize(
    ("record", "text", "asked"),
    [
        ({"text": "Hello there", "tokens": ["hel", "##lo", "there"]}, "Hello there", ()),
        ({"premise": "a b", "hypothesis": "c", "words": ["a", "b"]}, "a b", ()),
        ({"text": "Hello there", "tokens": 2, "words": 2}, "Hello there", ()),
        ({"tokens": ["Rome", "sleeps"], "id": 1}, "Rome sleeps", ()),
        ({"text": "Rome  sleeps", "tokens": ["Rome", "sleeps"], "tags": [1, 0]}, "Rome sleeps", ()),
        ({"text": "Rome  s", "tokens": ["Rome", "s"], "tags": [1, 0]}, "Rome  s", ("text",)),
        ({"text": "Rome", "split": ["Ro", "me"]}, "Ro me", ("split",)),
        ({"tokens": ["Rome", "sleeps"], "sentence": 3, "text": None}, "Rome sleeps", ()),
        ({"text": "北京大学位于", "tokens": ["北京大学", "位于"]}, "北京大学位于", ()),
    ],
)
@pytest.mark.filterwarnings("ignore::models.data.notes.DataNote")
def test_words_are_the_text_only_where_no_column_of_texts_is(
    write_data: Write, record: dict[str, object], text: str, asked: tuple[str, ...]
) -> None:
    path = write_data("d.jsonl", [json.dumps(record)])
    assert read_unlabelled(path, Columns(asked))[0].text == text
    assert read_documents([path], Columns(asked))[0][0] == text
    pair = write_data("d.jsonl", ['{"premise": ["a", "b"], "hypothesis": ["c", "d"]}'])
    with pytest.raises(UnusableData, match=r"premise is .* and no text"):
        read_unlabelled(pair, Columns(("premise", "hypothesis")))


@pytest.mark.filterwarnings("ignore::models.data.notes.DataNote")
def test_named_columns_are_read_and_nothing_else(write_data: Write) -> None:
    path = write_data("d.csv", ["Title,Body,Class Index,text", "A b,C d,3,e f", "G h,I j,1,k l"])
    named = Columns(("Title", "body"), "Class Index")
    assert read_dataset(path, "single_label", columns=named).examples[0] == ("A b", "C d", 1)
    assert task_of(path, named) == "single_label"
    assert read_unlabelled(path, named)[0] == ("A b", "C d")
    # Of texts alone, the label's column may be missing that the other files have.
    for name, lines in {"u.csv": ["Title,Body", "A b,C d"], "u.txt": ["A b"]}.items():
        of_text = Columns(named.texts if name == "u.csv" else (), "Class Index")
        found = read_unlabelled(write_data(name, lines), of_text)
        assert found == [("A b", "C d" if of_text.texts else None)]
    tagged = write_data("d.jsonl", ['{"w": ["a", "b"], "pos": ["X", "Y"]}'])
    found = read_dataset(tagged, "token", columns=Columns(("w",), "pos"))
    assert (found.labels, found.examples[0].text_a) == (["X", "Y"], "a b")


def test_rows_of_pairs_without_a_second_text_are_counted(write_data: Write) -> None:
    path = write_data("d.csv", ["premise,hypothesis,label", "a,b,1", "c,,0", "d,,0"])
    with pytest.warns(DataNote, match=r"second text is empty, read as one text: 2$"):
        read_dataset(path, "single_label")


def test_columns_that_are_not_read_are_named(write_data: Write) -> None:
    path = write_data("d.csv", ["id,text,aspect,label", "7,so good,food,1", "8,so bad,staff,0"])
    with pytest.warns(DataNote, match=r"d.csv: these columns are not read: id, aspect$"):
        read_dataset(path, "single_label")


# What annotation tools export, with the values of the column that tells what became of a row.
EXPORTS = {
    "Prodigy": ("d.jsonl", '{{"text": "a {i}", "label": "{label}", "answer": "{value}"}}'),
    "Argilla": ("d.csv", "a {i},{label},{value}"),
    "Label Studio": ("d.tsv", "a {i}\t{label}\t{value}"),
    "tags": ("d.jsonl", '{{"tokens": ["a"], "tags": ["B-{label}"], "answer": "{value}"}}'),
}


@pytest.mark.parametrize(
    ("tool", "header", "good", "bad"),
    [
        ("Prodigy", None, "accept", "reject"),
        ("Prodigy", None, "accept", "ignore"),
        ("Argilla", "text,label,Status", "submitted", "discarded"),
        ("Label Studio", "text\tlabel\twas_cancelled", "False", "True"),
        ("Label Studio", "text\tlabel\tis_confirmed", "True", "False"),
        ("Argilla", "text,label,verdict", "confirmed", "rejected"),
        ("tags", None, "accept", "reject"),
    ],
)
@pytest.mark.filterwarnings("ignore::models.data.notes.DataNote")
def test_rows_that_an_annotator_did_not_accept_teach_nothing(
    write_data: Write, tool: str, header: str | None, good: str, bad: str
) -> None:
    name, line = EXPORTS[tool]
    lines = [line.format(i=i, label="xy"[i % 2], value=good) for i in range(4)]
    first = [] if header is None else [header]
    task: Task = "token" if tool == "tags" else "single_label"
    assert len(read_dataset(write_data(name, [*first, *lines]), task).examples) == 4
    path = write_data(name, [*first, *lines, line.format(i=5, label="x", value=bad)])
    with pytest.raises(UnusableData, match=rf"the column \w+ holds .*{bad.lower()}"):
        read_dataset(path, task)
    assert read_unlabelled(path), "texts alone say nothing of labels"


def test_a_column_of_many_verdicts_is_a_label_where_it_is_named(write_data: Write) -> None:
    path = write_data("d.csv", ["text,answer", "a,accept", "b,reject"])
    found = read_dataset(path, "single_label", columns=Columns(label="answer"))
    assert found.labels == ["accept", "reject"]


MARKS = ["text,rude,threat,kind", "a,1,0,0", "b,0,0,1", "c,1,1,0"]


def test_columns_of_0_and_1_are_named_with_the_command_that_joins_them(write_data: Write) -> None:
    path = write_data("d.csv", MARKS)
    told = (
        r"rude, threat, kind hold 0 or 1\. .*python -c .*'rude', 'threat', 'kind'.*d-labels.jsonl"
    )
    with pytest.warns(DataNote, match=told), pytest.warns(DataNote, match="not read: threat, kind"):
        read_dataset(path, "single_label", columns=Columns(label="rude"))
    with pytest.raises(UnusableData, match=r"none is known to hold labels .*'rude', 'threat'"):
        read_dataset(path, "single_label")


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_the_command_that_joins_columns_of_0_and_1_writes_labels(
    write_data: Write, form: str
) -> None:
    rows = [line.split(",") for line in MARKS]
    lines = {
        "csv": MARKS,
        "tsv": ["\t".join(row) for row in rows],
        "jsonl": [json.dumps(dict(zip(rows[0], row, strict=True))) for row in rows[1:]],
    }
    path = write_data(f"d.{form}", lines[form])
    with pytest.raises(UnusableData) as caught:
        read_dataset(path, "single_label")
    command = str(caught.value).partition("into one column: ")[2]
    subprocess.run(command.replace("python", sys.executable, 1), shell=True, check=True)
    found = read_dataset(path.with_name("d-labels.jsonl"), "multi_label")
    assert found.labels == ["kind", "rude", "threat"]
    assert [example.label for example in found.examples] == [(0, 1, 0), (1, 0, 0), (0, 1, 1)]


@pytest.mark.parametrize(
    "records",
    [
        [
            {"fields": {"text": "a"}, "responses": {"kind": [{"value": "x", "user_id": 1}]}},
            {"fields": {"text": "b"}, "responses": {}},
        ],
        [
            {"text": "a", "options": [{"id": "x"}], "accept": ["x"], "answer": "accept"},
            {"text": "b", "options": [{"id": "x"}], "accept": ["x"], "answer": "reject"},
        ],
        [
            {"data": {"text": "a"}, "annotations": [{"result": [{"value": {"choices": ["x"]}}]}]},
            {"data": {"text": "b"}, "annotations": [{"was_cancelled": True, "result": []}]},
        ],
    ],
)
def test_the_command_that_unnests_an_export_writes_its_labels(
    write_data: Write, records: list[dict[str, Any]]
) -> None:
    path = write_data("d.jsonl", [*map(json.dumps, records)])
    with pytest.raises(UnusableData) as caught:
        read_dataset(path, "single_label")
    command = str(caught.value).partition("per line: ")[2]
    subprocess.run(command.replace("python", sys.executable, 1), shell=True, check=True)
    found = read_dataset(path.with_name("d-labels.jsonl"), "single_label", ["x", "y"])
    assert [(each.text_a, each.label) for each in found.examples] == [("a", 0)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Positive", "positive"),
        ("caf\u00e9", "cafe\u0301"),
        ("not spam", "not  spam"),
        ("not spam", "not_spam"),
        ("not-spam", "not spam"),
        ("not-spam", "not\u2013spam"),
        ("-3", "\u22123"),
        ("don't", "don\u2019t"),
        ("stra\u00dfe", "STRASSE"),
        ("spam", "sp\u200bam"),
        ("\uff21", "a"),
    ],
)
def test_labels_that_mean_the_same_are_refused(write_data: Write, one: str, other: str) -> None:
    rows = [{"text": "a", "label": one}, {"text": "b", "label": other}, {"text": "c", "label": "x"}]
    tagged = [{"tokens": ["a"], "tags": [f"B-{row['label']}"]} for row in rows]
    several = [{"text": row["text"], "labels": [row["label"]]} for row in rows]
    cases: list[tuple[Task, list[dict[str, Any]]]] = [
        ("single_label", rows), ("multi_label", several), ("token", tagged)
    ]  # fmt: skip
    for task, records in cases:
        path = write_data("d.jsonl", [json.dumps(each) for each in records])
        with pytest.raises(UnusableData, match=r"line 2: .* differ in case"):
            read_dataset(path, task)
    path = write_data("d.jsonl", [json.dumps(each) for each in rows])
    with pytest.raises(UnusableData, match=r"unknown label .* it differs from"):
        read_dataset(path, "single_label", [one, "x"])
    # Two labels are two where all are named.
    write_data("labels.json", [json.dumps({"labels": [one, other, "x"]})])
    assert len(read_dataset(path, "single_label").labels) == 3


def test_of_a_line_without_an_end_no_more_is_read_than_fits(write_data: Write) -> None:
    path = write_data("d.csv", ["text,label"])
    os.truncate(path, 80 << 20)
    with pytest.raises(UnusableData, match="line 2: more than"):
        read_dataset(path, "single_label")


BAD = "single_label"


@pytest.mark.parametrize(
    ("name", "lines", "task", "message"),
    [
        # columns
        ("d.csv", ["text,reply,label", "a,b c,1"], BAD,
         "line 2: the column reply holds a text too"),
        ("d.csv", ["text,reply,label", "a,这部电影,1"], BAD, "line 2: the column reply holds"),
        ("d.jsonl", ['{"text": "a", "label": 1}', '{"text": "a", "turns": ["b c"], "label": 1}'],
         BAD,
         "line 2: the column turns holds a text too"),
        ("d.csv", ["id,text,label", "no id,a,1"], BAD, "line 2: the column id holds a text too"),
        ("d.csv", ["text,premise,hypothesis,label", "a,b,c,1"], BAD,
         "line 1: the columns text, premise, hypothesis are no pair"),
        ("d.csv", ["hypothesis,label", "a,1"], BAD, "line 1: the columns hypothesis are no pair"),
        ("d.csv", ["text,label,gold_label", "a,1,0"], BAD, "line 1: label, gold_label may each be"),
        ("d.csv", ["text,Text,label", "a,b,1"], BAD, "line 1: the header names text and Text"),
        ("d.jsonl", ['{"text": "a", "Text": "b", "label": 1}'], BAD,
         "line 1: of text, Text, label, two differ in case only"),
        ("d.csv", ["text;label", "a;1"], BAD, "line 1: a single column, text;label; fields are"),
        ("d.jsonl", ['{"text": "a", "text": "b", "label": 1}'], BAD,
         "line 1: .*'text' is there twice"),
        ("d.tsv", ["label\tbody", "1\tgood"], BAD,
         "line 1: found label, body; none is known to hold texts"),
        ("d.tsv", ["index\tsentence", "0\tgood"], BAD,
         "line 1: found index, sentence; none .* hold labels .*--unlabelled"),
        ("d.csv", ["1,it was good", "0,it was bad"], BAD,
         "line 1: found 1, it was good; none is known to hold labels"),
        ("d.txt", ["it was good"], BAD, "d.txt: a text per line, and no labels; .*--unlabelled"),
        # rows
        ("d.tsv", ["label\ttext\tid", "1\tgood", "0\tbad\t2"], BAD,
         "line 2: there are 2 columns, but"),
        ("d.tsv", ["label\ttext", "0\tbad", "1"], BAD, "line 3: there is 1 column, but the header"),
        ("d.csv", ["text,label", "good"], BAD, "line 2: there is 1 column, but the header"),
        ("d.tsv", ["label\ttext", "1\tgood\tfilm"], BAD, "line 2: 'film' is beyond the header"),
        ("d.csv", ["label,text", "1,good,film"], BAD, "line 2: 'film' is beyond the header"),
        # quotes
        ("d.csv", ["text,label", 'a,1', '"b,0', "c,1"], BAD, "line 3: unexpected end of data"),
        ("d.csv", ["text,label", 'a,1', '"b,0', 'c "so",1'], BAD, "line 3: .*expected after"),
        ("d.csv", ["text,label", '"a,1', "b,0", '5",1', "c,0"], BAD, "line 2: .*like a row, 'a,1'"),
        ("d.csv", ["label,text", '1,"a', "0,b", '1,5"', "0,c"], BAD, "line 2: .*like a row, '0,b'"),
        ("d.csv", ["label,text", '1,"a', '0,5"', "0,c"], BAD, "line 2: .*like a row, '0,5'"),
        # values
        ("d.tsv", ["label\ttext", "1\tgood", "0\t "], BAD, "line 3: the text is empty"),
        ("d.jsonl", ['{"text": 5, "label": 1}'], BAD, "line 1: text is 5, and no text"),
        ("d.jsonl", ['{"text": null, "label": 1}'], BAD, "line 1: text is None, .*leave such"),
        ("d.json", ['{"text": {"0": "a"}, "label": 1}'], BAD, "line 1: text is .*orient='records'"),
        ("d.jsonl", ['{"text": ["a"], "label": 1}'], BAD, r"line 1: text is \['a'\], and no text"),
        ("d.jsonl", ['{"text": "a", "text_pair": 2, "label": 1}'], BAD,
         "line 1: text_pair is 2, and"),
        ("d.jsonl", ['{"text": "a\\ud800", "label": 1}'], BAD, "line 1: half of a surrogate"),
        # labels
        ("d.csv", ["label,text", ",good"], BAD, "line 2: the label is empty"),
        ("d.csv", ["label,text", "1,good", "-1,good"], BAD,
         "line 3: the label -1, which marks a row"),
        ("d.csv", ["label,text", "1.0,good", "-1.0,good"], BAD,
         "line 3: the label -1.0, which marks"),
        *(("d.csv", ["label,text", f"{none},good"], BAD, f"line 2: the label {none}, which marks")
          for none in ("nan", "NA", "N/A", "<NA>", "None", "NULL", "-")),
        ("d.jsonl", ['{"text": "a", "label": NaN}'], BAD,
         "line 1: the label nan, which marks a row"),
        ("d.jsonl", ['{"text": "a", "label": null}'], BAD, "line 1: the label is None; a name"),
        ("d.jsonl", ['{"text": "a", "label": {"id": 1}}'], BAD, "line 1: the label is {'id': 1}"),
        ("d.jsonl", ['{"text": "a", "label": []}'], BAD, "line 1: the label is empty"),
        ("d.jsonl", ['{"text": "a", "label": ["x", "y"]}'], BAD,
         "line 1: .*x, y are more than one"),
        ("d.tsv", ["score\ttext", "-1\ta", "-1.0\tb"], "regression",
         "every value is -1, which marks"),
        ("d.csv", ["labels,text", '"x, y",a'], "multi_label", "line 2: 'x, y' looks like several"),
        ("d.csv", ["labels,text", "\"['x', 'y']\",a"], "multi_label",
         "line 2: .* looks like several"),
        ("d.jsonl", ['{"text": "a", "labels": [0, 1, 0]}'], "multi_label",
         "line 1: .* a label twice"),
        ("d.jsonl", ['{"text": "a", "labels": [0, 1]}', '{"text": "b", "labels": [1, 0]}'],
         "multi_label", "every row's list is .* not a mark for each"),
        ("d.jsonl", ['{"text": "a", "labels": [1.0, 0.0]}'], "multi_label",
         "line 1: .*not a mark for"),
        ("d.jsonl", ['{"text": "a", "labels": [null]}'], "multi_label", "line 1: the label is"),
        ("d.jsonl", ['{"tokens": ["a"], "labels": [1]}'], "multi_label",
         "line 1: .*--task token, "),
        ("d.jsonl", ['{"tokens": ["a", 2], "tags": [0, 1]}'], "token",
         "line 1: token 1 is 2, and no"),
        ("d.jsonl", ['{"tokens": ["a"], "tags": [null]}'], "token", "line 1: a tag is no name"),
        ("d.jsonl", ['{"tokens": ["a"], "tags": [-100]}'], "token",
         "line 1: the label -100, which"),
        ("d.csv", ["token,tag", "a,O"], "token", r"d.csv: tagged tokens are read from \.conll"),
        ("d.parquet", ["PAR1"], "token", r"\.parquet is not read; convert it: "),
        ("d.conll", ["a NNP O", "b O"], "token", "line 2: 2 columns, but 3 in the first line"),
        ("d.bio", ["O\ta", "B-x\tfour"], "token", r"first column holds the tags.*\$2, \$1.*d.bio"),
        ("d.iob2", ["# text = a", "1\ta\tO\t-", "2\tb\tO\t-"], "token",
         "first column holds numbers.*cut -f2,3"),
        ("d.conll", ["id\tword\ttag", "7\ta\tO"], "token", "line 1: the columns are id word tag; "),
        # tagged tokens
        ("d.tsv", ["Rome\tO", "sleeps"], "token",
         "line 2: expected a token, a tab and its tag, found 's"),
        *(("d.tsv", [line], "token", "line 1: expected a token") for line in ("Rome\t", "\tO")),
        ("d.tsv", ["token\ttag"], "token", "d.tsv: the file has no sentences"),
        ("d.tsv", ["label\ttext", "1\tgood"], "token",
         "line 1: a table of texts; token classification"),
        ("d.jsonl", ['{"tokens": ["a"], "tags": []}'], "token",
         "line 1: tags is an empty list; leave"),
        *(("d.jsonl", [f'{{"tokens": ["a"], {tags}}}'], "token", "line 1: 1 tokens have 2 tags")
          for tags in ('"tags": [0, 1]', '"tags": [], "ner_tags": [0, 1]')),
        ("d.jsonl", ['{"tokens": ["a", " "], "tags": [0, 1]}'], "token",
         "line 1: token 1 is empty"),
        ("d.jsonl", ['{"text": "a"}'], "token", "line 1: expected a list of tokens"),
        # files
        ("d.tsv", ["label\ttext"], BAD, "d.tsv: the file has no rows"),
        *((f"d.{suffix}", ["label,text".replace(",", tab), f"1{tab}a",
           f"\ufeffLabel{tab}text".lower()], BAD, "line 3: the header is there again")
          for suffix, tab in (("tsv", "\t"), ("csv", ","))),
        ("d.csv", [], BAD, "d.csv: the file has no rows"),
        ("d.jsonl", ['{"label": 1', "{}"], BAD, "line 1: not JSON"),
        ("d.json", ["[", '{"text": "a", "label": 1}]'], BAD, r"line 1: not JSON: .*jq -c '\.\[\]'"),
        ("d.jsonl", ['{"label": "a\\ud800", "text": "a"}'], BAD, "line 1: half of a surrogate"),
        ("d.jsonl", ['{"tokens": ["a\\uDC00"], "tags": ["O"]}'], "token", "line 1: half of a"),
        ("d.jsonl", ["[" * 100_000], BAD, "line 1: not JSON"),
        ("d.csv", ["text,label,tags", "a,1,action comedy"], BAD, "line 2: the column tags holds a"),
        ("d.csv", ["text,label,score", "a,1,0.5"], "regression", "line 1: label, score may each"),
        ("d.csv", ["id,text,label", "1,a b,1", ",,", "3,c,0"], None, "line 3: the text is empty"),
        ("d.csv", ["text", "hello", '""', "ok"], None, "line 3: the text is empty"),
        ("d.tsv", ["text", '"a ""b"""', '""', "ok"], None, "line 3: the text is empty"),
        ("d.csv", ['"text";"label"', '"a";"1"'], BAD, 'line 1: a single column, "text";"label"'),
        ("d.tsv", ['"text","label"', '"a","1"'], BAD, 'line 1: a single column, "text","label"'),
        ("d.csv", ["text,label", "a\rb,1"], BAD, "line 2: a CR alone ends no line"),
        ("d.jsonl", ['{"text": ["a", "b"], "label": [0, 1]}'], None, "each line holds one row"),
        ("d.jsonl", ['{"tokens": ["a", "b"], "tags": ["O", " "]}'], "token", "line 1: a tag is no"),
        ("d.jsonl", ['{"tokens": ["a", "b"], "tags": [true, 1]}'], "token", "line 1: a tag is no"),
        ("d.jsonl", [f'{{"text": "a", "label": {"1" * 5000}}}'], BAD, "line 1: not JSON"),
        ("d.json", ['[{"text": "a", "label": 1}]'], BAD, r"line 1: expected a JSON object.*jq -c"),
        ("d.parquet", ["PAR1"], BAD,
         r"\.parquet is not read; convert it: .*read_parquet.*lines=True"),
        ("d.arrow", ["\xff"], BAD, r"\.arrow is not read; convert it: .*Dataset.from_file"),
        ("d.csv.gz", [""], BAD, "packed files are not read; unpack it"),
        ("d.xml", ["label"], BAD, r"d.xml: the name must end in .tsv, .*.jsonl"),
        ("d.tsv", ["label\ttext\r1\tgood"], BAD, "line 1: a CR alone ends no line"),
        ("d.jsonl", ['{"text": "a"}\r{"text": "b"}'], BAD, "line 1: a CR alone ends no line"),
        ("d.conll", ["a O\rb O\r\rc B-x"], "token", "line 1: a CR alone ends no line"),
        ("d.csv", ["label,text\r1,good"], BAD, "line 1: a CR alone ends no line"),
        ("d.csv", ["label,text", "1,a\0b"], BAD, "line 2: not UTF-8 text: it has NUL bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_file_and_line(
    write_data: Write, name: str, lines: list[str], task: Task | None, message: str
) -> None:
    path = write_data(name, lines)
    with pytest.raises(UnusableData, match=message):
        read_dataset(path, task) if task else read_unlabelled(path)


@pytest.mark.parametrize("name", ["d.tsv", "d.csv", "d.jsonl", "d.conll", "d.txt"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("latin-1", "line 1: not UTF-8 text: .*0xe9"),
        ("utf-16", "line 1: not UTF-8 text: it has NUL"),
    ],
)
def test_other_codes_are_refused_by_every_reader(
    write_data: Write, name: str, code: str, message: str
) -> None:
    path = write_data(name, [])
    path.write_bytes("un café\n".encode(code))
    with pytest.raises(UnusableData, match=message):
        read_unlabelled(path)
    path.unlink()
    with pytest.raises(UnusableData, match=f"{name}: no such file"):
        read_unlabelled(path)


@pytest.mark.parametrize(
    "line",
    ["text,label", "text, label", "#1 String,#2 String", "Question;sentence",
     '{"body": "a", "label": 1}', "__label__yes so good",
     "body\tanswer", "O\ta", '"text","label"', "id,text", '[{"text": "a"},', "[", "{",
     "so good __label__yes"],
)  # fmt: skip
def test_tables_are_no_lines_of_text(write_data: Write, line: str) -> None:
    for before in ([], [" "]):
        path = write_data("d.txt", [*before, line, line.replace("e", "i")])
        number = len(before) + 1
        with pytest.raises(UnusableData, match=rf"line {number}: '.* is no text alone: name a "):
            read_unlabelled(path)


def test_a_line_of_a_text_file_may_look_a_little_like_a_table(write_data: Write) -> None:
    lines = ["Text, please", "[sic] he said", "id,text", '{"text": "a"}', "a __label__x", "Text"]
    heading = ["Question", *lines]
    assert [text for text, _ in read_unlabelled(write_data("d.txt", heading))] == heading
    assert [text for text, _ in read_unlabelled(write_data("d.txt", lines))] == lines
    # A first line that is a column's name is one.
    assert [text for text, _ in read_unlabelled(write_data("d.txt", ["text", *lines]))] == lines


def test_texts_that_end_like_tags_are_texts(write_data: Write) -> None:
    lines = ["he takes vitamin B-12", "an answer is an O"]
    assert [text for text, _ in read_unlabelled(write_data("d.txt", lines[:1]))] == lines[:1]
    assert [text for text, _ in read_unlabelled(write_data("d.txt", lines))] == lines


def test_numbers_that_name_labels_are_no_ids(write_data: Write) -> None:
    path = write_data("d.csv", ["label,text", "0,a", "2,b"])
    with pytest.raises(UnusableData, match="line 2: unknown label '0'; the labels are 1, 2"):
        read_dataset(path, "single_label", ["1", "2"])


@pytest.mark.parametrize(
    "names", ['[{"id": 0}, {"id": 1}]', '[null, "a"]', '[["a"], "b"]', '["a", "a"]', '"ab"']
)
def test_names_of_labels_that_are_none_are_refused(write_data: Write, names: str) -> None:
    path = write_data("d.csv", ["label,text", "a,a", "b,b"])
    (path.parent / "labels.json").write_text(f'{{"labels": {names}}}')
    with pytest.raises(UnusableData, match=r"labels.json: (expected|labels must differ)"):
        read_dataset(path, "single_label")


@pytest.mark.parametrize(
    ("names", "written"), [("[false, true]", "False"), ("[0.0, 1.0]", "0.0"), ("[0, 1]", "0")]
)
def test_names_of_labels_may_be_json_s_own(write_data: Write, names: str, written: str) -> None:
    path = write_data("d.csv", ["label,text", f"{written},a"])
    (path.parent / "labels.json").write_text(f'{{"labels": {names}}}')
    assert read_dataset(path, "single_label").examples[0].label == 0


def test_labels_file_names_a_regression_s_value(write_data: Write) -> None:
    path = write_data("d.csv", ["label,text", "1,a", "2,b"], labels=[" closeness "])
    assert read_dataset(path, "regression").labels == ["closeness"]


def test_labels_that_are_named_may_look_like_none(write_data: Write) -> None:
    path = write_data("d.csv", ["label,text", "-1,a", "1,b"], labels=["-1", "0", "1"])
    assert [each.label for each in read_dataset(path, "single_label").examples] == [0, 2]
    path = write_data("d.conll", ["a\t-", "b\tX"], labels=["X", "-"])
    assert read_dataset(path, "token").examples[0].label[0].tag == 1


def test_names_of_labels_may_be_numbers_of_any_form(write_data: Write) -> None:
    path = write_data("d.csv", ["label,text", "1,a", "2.0,b"], labels=["1.0", "2.0"])
    assert [each.label for each in read_dataset(path, "single_label").examples] == [0, 1]
    path = write_data("d.csv", ["label,text", "1,a"], labels=["-1", "+1"])
    with pytest.raises(UnusableData, match="unknown label '1'; the labels are -1, "):
        read_dataset(path, "single_label")
    beside = path.parent / "labels.json"
    beside.write_text('{"labels": ["no", "yes"]}', "utf-8-sig")
    assert read_dataset(path, "single_label").examples[0].label == 1
