"""Send one classification: `URL BODY`. Exits with 0 if the answer has a label."""

import json
import sys
import urllib.request

url, body = sys.argv[1], sys.argv[2]
request = urllib.request.Request(
    f"{url}/v1/classify", data=body.encode(), headers={"Content-Type": "application/json"}
)
with urllib.request.urlopen(request, timeout=60) as response:
    answer = json.load(response)
[result] = answer["results"]
layer = result["exit"]["layer"]
print(f"{result['label']} ({result['score']:.3f}), left at layer {layer}")
