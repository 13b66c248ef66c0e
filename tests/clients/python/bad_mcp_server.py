"""An MCP server on stdio whose answers are wrong, for tests: bad_mcp_server.py METHOD ANSWER.

ANSWER is what it answers to METHOD, with ID for the id of the request.
"""

import json
import sys

RESULTS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "bad", "version": "1"}},
    "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": []},
}

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "unknown"}}
    if request["method"] in RESULTS:
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": RESULTS[request["method"]]}
    text = json.dumps(answer)
    if request["method"] == sys.argv[1]:
        text = sys.argv[2].replace("ID", json.dumps(request["id"]))
    print(text, flush=True)
