"""An MCP server of the package mcp, for tests: mcp_server.py [PORT]; without a port on stdio."""

import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("tools")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@server.tool()
def environment(name: str) -> str:
    """A variable of the server's environment."""
    return os.environ.get(name, "")


@server.tool()
def fail() -> str:
    """Fails."""
    raise RuntimeError("broken tool")


@server.tool()
def flood() -> str:
    """Answers at length."""
    return "x" * 100_000


@server.tool()
async def hang() -> str:
    """Never answers."""
    await asyncio.Event().wait()


@server.tool()
def process() -> str:
    """The server's process."""
    return str(os.getpid())


@server.tool()
def die() -> str:
    """Ends the server."""
    os._exit(1)


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
