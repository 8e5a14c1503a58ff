"""Locust users of the HTTP API: the default policy, rules of their own, several texts at once.

`make loadtest` runs them for a minute. They also run under Locust's own command, for example
`locust -f loadtest/locustfile.py --host http://127.0.0.1:8000`.
"""

import json
import random
from argparse import ArgumentParser
from typing import Any

from locust import FastHttpUser, events, task
from locust.contrib.fasthttp import ResponseContextManager

from loadtest.sentences import make_sentences

Json = dict[str, Any]

_SENTENCES = make_sentences(2000, seed=1)
_BATCH_TEXTS = 8
_PATH = "/v1/classify"


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser) -> None:
    """Add `--exit` to Locust's options."""
    parser.add_argument(
        "--exit",
        type=json.loads,
        default=None,
        metavar="JSON",
        help='exit rule that all users ask for, such as {"rule": "entropy", "threshold": 0.2}',
    )


class ApiUser(FastHttpUser):
    """Sends one request after the other, each as soon as the last is answered."""

    abstract = True
    connection_timeout = 10.0
    network_timeout = 30.0
    kind = ""

    def rule(self) -> Json | None:
        """Return the rule to ask for; None leaves the choice to the policy."""
        return None

    def texts(self) -> str | list[str]:
        """Return what the next request asks about."""
        return random.choice(_SENTENCES)

    @task
    def classify(self) -> None:
        """Send one request; anything but an answer to every text is a failure."""
        inputs = self.texts()
        rule = self.environment.parsed_options.exit or self.rule()
        body = {"inputs": inputs} | ({"exit": rule} if rule else {})
        num_texts = 1 if isinstance(inputs, str) else len(inputs)
        with self.client.post(_PATH, json=body, name=self.kind, catch_response=True) as response:
            if problem := _problem(response, num_texts):
                response.failure(problem)


class DefaultUser(ApiUser):
    """Leaves the rule to the policy, as most clients do."""

    kind = "default policy"
    weight = 4


class ThresholdUser(ApiUser):
    """Asks for an entropy threshold of its own."""

    kind = "own threshold"
    weight = 2

    def rule(self) -> Json:
        """Return a threshold between careful and bold."""
        return {"rule": "entropy", "threshold": round(random.uniform(0.02, 0.6), 2)}


class PatienceUser(ApiUser):
    """Asks for exits that agree."""

    kind = "patience"

    def rule(self) -> Json:
        """Return one or two agreements."""
        return {"rule": "patience", "patience": random.choice((1, 2))}


class BatchUser(ApiUser):
    """Sends several texts in one request."""

    kind = f"{_BATCH_TEXTS} texts"

    def texts(self) -> list[str]:
        """Return different texts, with their different lengths."""
        return random.sample(_SENTENCES, _BATCH_TEXTS)


USERS = [DefaultUser, ThresholdUser, PatienceUser, BatchUser]


def _problem(response: ResponseContextManager, num_texts: int) -> str | None:
    if response.status_code == 0:
        return None  # no connection: Locust knows and says why
    try:
        reply = response.json()
    except ValueError:
        return f"{response.status_code} without JSON"
    if response.status_code != 200:
        return f"{response.status_code} {reply.get('error')}"
    num_results = len(reply.get("results", ()))
    return None if num_results == num_texts else f"{num_results} results for {num_texts} texts"
