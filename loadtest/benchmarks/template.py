"""What `make benchmarks` says between the tables of the page."""

INTRO = """# Benchmarks

    make benchmarks ARGS="--page docs/benchmarks.md --readme README.md"

This command measures and writes this page. `sst2-minilm` is the shipped model, six layers in int8,
on SST-2's dev set, one text a request. Each server has one core and one thread, the load another
core. `same label`: as the whole model's. After ±: the round furthest off.
"""
LOSE = """## Where we lose

What we want over the best peer with at least 98.5 % of the whole model's labels. Bold: not reached.
"""
AGAIN = """The later half of the rounds of {suite}, a second run, gave throughputs that differ from
the first's by {median:.0f} % in the median, by {most:.0f} % at most.
"""
BEHIND = """Other figures in which a peer is ahead by more than both ranges (in brackets the best):
"""
BIASED = """## Are we biased?

Yes: we wrote this server and chose texts and loads. Against that:

* Every peer gets the same int8 graph, tokenizer and padding by length, and batches as its
  documentation says. (Other weights: the pipeline's are fp32, OpenVINO's int8 is NNCF's, Model2Vec
  is another model.) The peers' files and pinned packages are in `loadtest/benchmarks/peers`;
  corrections are welcome.
* A server whose labels are not the whole model's is not measured, and quality stands beside speed.
* The losses above are computed, not chosen.

What stays: one machine with two cores says nothing of GPUs or of many cores. Load and server share
caches and memory bandwidth. Our rules were chosen on the dev set, and certified on other texts.
"""
HOW = """## How it is measured

Contenders are started in turn, in rounds of opposite order ({rounds}).
Labels are checked, two seconds warm up, then each load runs for {seconds:g} s. Closed loop: each
client sends when its last answer came. Open loop: the highest Poisson rate whose p99, from when a
request was due, stays in the bound, by bisection. Processor time and memory: of all processes.
[load-testing.md](load-testing.md#comparison-with-other-servers) has the options.
"""
WRITTEN = """## What a person writes, and settings

Lines of Python that this benchmark needed for each, beside 90 that most share (tokenizer, graph,
labels); its way of batching, which the linked page documents; and the statuses that bad JSON, an
input of a wrong type, and the pages for health and metrics got.
"""
ABSENT = """## Who is not there

Text Embeddings Inference and TensorFlow Serving (containers only), TorchServe (no longer
maintained), vLLM and SGLang (built for generators on GPUs).
"""
END = """Why the engine is built as it is: [measurements.md](measurements.md).
GPUs: [gpu.md](gpu.md).
"""
