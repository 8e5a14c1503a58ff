"""Send one classification: `URL BODY`. Exits with 0 if the answer has a label.

The variable OFFRAMP_KEY holds a key. Where it is set, a request without a key must be refused.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any


def ask(url: str, body: str, key: str) -> dict[str, Any]:
    """Return the answer to a classification."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{url}/v1/classify", data=body.encode(), headers=headers)
    # The server is in the same cluster: no proxy of the environment shall see the key.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def check_that_a_key_is_needed(url: str, body: str) -> None:
    """Exit with a sentence unless a request without a key is answered 401."""
    try:
        ask(url, body, "")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 401:
            print("without a key: refused")
            return
        raise
    sys.exit("the server answers a request without a key; it should refuse it with 401")


url, body = sys.argv[1], sys.argv[2]
key = os.environ.get("OFFRAMP_KEY", "")
[result] = ask(url, body, key)["results"]
layer = result["exit"]["layer"]
print(f"{result['label']} ({result['score']:.3f}), left at layer {layer}")
if key:
    check_that_a_key_is_needed(url, body)
