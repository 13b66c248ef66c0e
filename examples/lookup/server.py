"""An MCP server (pip install mcp) whose tool knows the answers to the tasks: server.py [PORT], 8000 by default."""

import hashlib
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("lookup")


@server.tool()
def lookup(task: str) -> str:
    """The answer to the task."""
    return str(hashlib.sha256(task.encode()).digest()[0] % 4)


server.run("streamable-http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
