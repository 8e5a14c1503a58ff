"""The first rows of files as data sets distribute them, and what they hold.

Headers, columns, quotes and codes are those of the originals; the texts are made up.
"""

from typing import NamedTuple

from models.data.examples import Example
from serve.rules.traits import Task

PARSES = (
    "sentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2"
)
PARSED = (
    "( it works )\t( it fails )\t(ROOT (S it works))\t(ROOT (S it fails))\tIt works.\tIt fails."
)


class File(NamedTuple):
    """A file, and what it gives.

    Attributes:
        notes: what is told of it, as parts of the sentences.
    """

    name: str
    lines: list[str]
    task: Task
    labels: list[str]
    examples: list[Example]
    notes: tuple[str, ...] = ()


FILES = {
    "GLUE CoLA": File(
        "train.tsv",
        ["gj04\t1\t\tOne more hint and I'm gone.", "cj99\t0\t*\tThe more hints \"the better."],
        "single_label",
        ["0", "1"],
        [Example("One more hint and I'm gone.", None, 1),
         Example('The more hints "the better.', None, 0)],
        ("not read: source",),
    ),
    "GLUE SST-2": File(
        "train.tsv",
        ["sentence\tlabel", "hides new jokes \t0", "a `` real '' joy \t1"],
        "single_label",
        ["0", "1"],
        [Example("hides new jokes", None, 0), Example("a `` real '' joy", None, 1)],
    ),
    "GLUE MRPC": File(
        "msr_paraphrase_train.txt",
        ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
         '1\t702876\t702977\tHe called them " the witness " .\t" The witness , " he called them .',
         "0\t2108705\t2108831\tIt sold the chain .\tIt bought the chain ."],
        "single_label",
        ["0", "1"],
        [Example('He called them " the witness " .', '" The witness , " he called them .', 1),
         Example("It sold the chain .", "It bought the chain .", 0)],
        ("not read: #1 ID, #2 ID",),
    ),
    "GLUE QQP, with a row that lacks columns": File(
        "train.tsv",
        ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
         '133273\t213221\t213222\tWhat does "so" mean?\tHow is "so used"?\t0',
         "402555\t536040\t536041\tHow do I start?",
         "360472\t364011\t490273\tWhat now?\tWhat next?\t1"],
        "single_label",
        ["0", "1"],
        [Example('What does "so" mean?', 'How is "so used"?', 0),
         Example("What now?", "What next?", 1)],
        ("rows left out because they lack columns: 1", "not read: id, qid1, qid2"),
    ),
    "GLUE STS-B": File(
        "train.tsv",
        ["index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
         "0\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\tA plane lands.\tA plane.\t5.000",
         "1\tmain-news\theadlines\t2013\t4\tThe Daily News\tnone\tTwo die.\tTwo live.\t0.800"],
        "regression",
        ["score"],
        [Example("A plane lands.", "A plane.", 5.0), Example("Two die.", "Two live.", 0.8)],
        ("not read: ",),
    ),
    "GLUE MNLI": File(
        "train.tsv",
        [f"index\tpromptID\tpairID\tgenre\t{PARSES}\tlabel1\tgold_label",
         f"0\t31193\t31193n\tgovernment\t{PARSED}\tneutral\tneutral",
         f"1\t101457\t101457e\ttelephone\t{PARSED}\tcontradiction\tcontradiction"],
        "single_label",
        ["contradiction", "neutral"],
        [Example("It works.", "It fails.", 1), Example("It works.", "It fails.", 0)],
        ("sentence1_binary_parse",),
    ),
    "GLUE QNLI": File(
        "train.tsv",
        ["index\tquestion\tsentence\tlabel",
         "0\tWhen did it open?\tIt opened in 1898.\tentailment",
         '1\tWho said "no"?\tIt is "old.\tnot_entailment'],
        "single_label",
        ["entailment", "not_entailment"],
        [Example("When did it open?", "It opened in 1898.", 0),
         Example('Who said "no"?', 'It is "old.', 1)],
        ("not read: index",),
    ),
    "GLUE RTE": File(
        "dev.tsv",
        ["index\tsentence1\tsentence2\tlabel", "0\tShe has died.\tShe fell.\tnot_entailment",
         "1\tIt is old now.\tIt is old.\tentailment"],
        "single_label",
        ["entailment", "not_entailment"],
        [Example("She has died.", "She fell.", 1), Example("It is old now.", "It is old.", 0)],
        ("not read: index",),
    ),
    "SNLI": File(
        "snli_1.0_dev.txt",
        [f"gold_label\t{PARSES}\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5",
         f"neutral\t{PARSED}\t4705552913.jpg#2\t4705552913.jpg#2r1n\tneutral\t\t\t\t",
         f"-\t{PARSED}\t4705552913.jpg#2\t4705552913.jpg#2r1c\tneutral\tentailment\t\t\t",
         f"entailment\t{PARSED}\t4705552913.jpg#2\t4705552913.jpg#2r1e\tentailment\t\t\t\t"],
        "single_label",
        ["entailment", "neutral"],
        [Example("It works.", "It fails.", 1), Example("It works.", "It fails.", 0)],
        ("rows left out because gold_label is -: 1", "not read"),
    ),
    "SNLI in JSON": File(
        "snli_1.0_dev.jsonl",
        ['{"annotator_labels": ["neutral"], "captionID": "1.jpg#0", "gold_label": "neutral", '
         '"pairID": "1.jpg#0r1n", "sentence1": "It works.", "sentence1_binary_parse": "( it )"'
         ', "sentence1_parse": "(ROOT (S it works))", "sentence2": "It fails.", '
         '"sentence2_binary_parse": "( it fails )", "sentence2_parse": "(ROOT (S it fails))"}',
         '{"annotator_labels": ["neutral", "entailment"], "gold_label": "-", "sentence1": "a b", '
         '"sentence2": "c d"}',
         '{"annotator_labels": ["entailment"], "gold_label": "entailment", "sentence1": "e f", '
         '"sentence2": "g h"}'],
        "single_label",
        ["entailment", "neutral"],
        [Example("It works.", "It fails.", 1), Example("e f", "g h", 0)],
        ("rows left out because gold_label is -: 1", "not read"),
    ),
    "ELUE SST-2 and IMDb": File(
        "train.tsv",
        ["sentence\tlabel", '"Bad" is all.<br /><br />It drags\t0', "It\x85lives\t1"],
        "single_label",
        ["0", "1"],
        [Example('"Bad" is all.<br /><br />It drags', None, 0), Example("It\x85lives", None, 1)],
    ),
    "SciTail": File(
        "scitail_1.0_train.tsv",
        ["Pluto rotates once in days.\tPluto rotates.\tneutral",
         "Earth rotates once a day.\tEarth rotates.\tentails"],
        "single_label",
        ["entails", "neutral"],
        [Example("Pluto rotates once in days.", "Pluto rotates.", 1),
         Example("Earth rotates once a day.", "Earth rotates.", 0)],
    ),
    "SciTail in SNLI's form": File(
        "scitail_1.0_train.txt",
        ['{"gold_label": "neutral", "sentence1": "It works.", "sentence2": "It fails.", '
         '"sentence1_parse": "(ROOT (S it works))"}',
         '{"gold_label": "entailment", "sentence1": "It is.", "sentence2": "It was.", '
         '"sentence1_parse": "(ROOT (S it is))"}'],
        "single_label",
        ["entailment", "neutral"],
        [Example("It works.", "It fails.", 1), Example("It is.", "It was.", 0)],
        ("these columns are not read: sentence1_parse",),
    ),
    "STS benchmark": File(
        "sts-train.csv",
        ["main-captions\tMSRvid\t2012test\t0001\t5.000\tA plane is off.\tAn air plane, off.",
         'main-news\tMSRpar\t2012train\t7\t2.5\tHe said "no.\t"No", he\'d say.\tfrom\tthere'],
        "regression",
        ["score"],
        [Example("A plane is off.", "An air plane, off.", 5.0),
         Example('He said "no.', '"No", he\'d say.', 2.5)],
        ("these columns are not read: ",),
    ),
    "SICK": File(
        "SICK_train.txt",
        ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment",
         "1\tA group of kids\tKids play\t4.5\tNEUTRAL",
          "2\tA man runs\tNo man runs\t3\tENTAILMENT"],
        "single_label",
        ["ENTAILMENT", "NEUTRAL"],
        [Example("A group of kids", "Kids play", 1), Example("A man runs", "No man runs", 0)],
        ("not read: pair_ID, relatedness_score",),
    ),
    "IMDb": File(
        "IMDB Dataset.csv",
        ["review,sentiment", '"One said ""no"".<br />It, too",positive', "Dull.,negative"],
        "single_label",
        ["negative", "positive"],
        [Example('One said "no".<br />It, too', None, 1), Example("Dull.", None, 0)],
    ),
    "MultiNLI of the datasets library": File(
        "train.jsonl",
        ['{"premise": "It works.", "hypothesis": "It fails.", "label": 1, "idx": 0}',
         '{"premise": "It is.", "hypothesis": "It was.", "label": 2, "idx": 1}'],
        "single_label",
        ["1", "2"],
        [Example("It works.", "It fails.", 0), Example("It is.", "It was.", 1)],
        ("not read: idx",),
    ),
    "GoEmotions of the datasets library": File(
        "train.jsonl",
        ['{"text": "My favourite.", "labels": [2, 10], "id": "eebbqej"}',
         '{"text": "None.", "labels": [], "id": "ed00q6i"}'],
        "multi_label",
        ["2", "10"],
        [Example("My favourite.", None, (1.0, 1.0)), Example("None.", None, (0.0, 0.0))],
        ("not read: id",),
    ),
    "written by pandas": File(
        "train.csv",
        [",text,text_pair,label", '0,"first, one",second,1.0', "1,third,,0.0"],
        "single_label",
        ["0", "1"],
        [Example("first, one", "second", 1), Example("third", None, 0)],
        ("rows whose second text is empty, read as one text: 1", "not read: (column 1)"),
    ),
    "written by pandas, with tabs": File(
        "train.tsv",
        ["text\tlabel", '"say ""so"""\tyes', '"a\ttab\nand lines"\tno'],
        "single_label",
        ["no", "yes"],
        [Example('say "so"', None, 1), Example("a\ttab\nand lines", None, 0)],
    ),
    "CoNLL-2003": File(
        "train.txt",
        ["-DOCSTART- -X- -X- O", "", "EU NNP B-NP B-ORG", "acts VBZ B-VP O", "", "So RB B-ADVP O"],
        "token",
        ["O", "B-ORG"],
        [],
    ),
    "CoNLL-2003 of the datasets library": File(
        "train.jsonl",
        ['{"id": "0", "tokens": ["EU", "acts"], "pos_tags": [22, 42], "ner_tags": [3, 0]}'],
        "token",
        ["0", "3"],
        [],
        ("not read: id, pos_tags",),
    ),
}  # fmt: skip
