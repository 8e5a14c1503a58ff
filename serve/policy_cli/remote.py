"""The policy of one model on a server."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from serve.errors import InvalidRequest
from serve.policy.difference import changes
from serve.policy.document import Policy, WholePolicy
from serve.policy_cli.server import Answer, Server
from serve.policy_cli.yaml_text import read_document
from serve.validation import explain


class RemotePolicy:
    """Calls the routes of a model's policy.

    Attributes:
        server: where the model is.
    """

    def __init__(self, server: Server, model: str | None) -> None:
        """Take the model's name; None for the only one that is served."""
        self.server = server
        self._model = model

    @cached_property
    def path(self) -> str:
        """The path of the policy's routes."""
        return f"/v1/models/{quote(self._model or self._only_model(), safe='')}/policy"

    def call(self, method: str, tail: str = "", **body: Any) -> Answer:
        """Send a call; of the body what is not None."""
        given = {name: value for name, value in body.items() if value is not None}
        return self.server.call(method, self.path + tail, None if method == "GET" else given)

    def version(self) -> int:
        """Return the version that is live."""
        return int(self.call("GET").fields["version"])

    def changes(self, old: str, new: str) -> dict[str, Any]:
        """Return what two policies differ in: numbers of versions, files, or "" for the live one.

        Both are read as the server reads them: a default that is written out is no difference.
        """
        return dict(changes(self._policy(old), self._policy(new)))

    def _policy(self, named: str) -> Policy:
        if named and not named.isdecimal():
            where, document = f"file {named}", read_document(Path(named))
        else:
            where = f"version {named}" if named else "the live policy"
            answer = self.call("GET", f"/history/{named}" if named else "")
            document = answer.fields["policy"]
        try:
            return _WHOLE.validate_json(json.dumps(document))
        except ValidationError as error:
            raise InvalidRequest(f"{where}: {explain(error)}") from None

    def _only_model(self) -> str:
        names = [model["id"] for model in self.server.call("GET", "/v1/models").fields["data"]]
        if len(names) == 1:
            return str(names[0])
        raise InvalidRequest(
            f"several models are served; add --model and one of {', '.join(names)}"
        )


_WHOLE: TypeAdapter[Policy] = TypeAdapter(WholePolicy)
