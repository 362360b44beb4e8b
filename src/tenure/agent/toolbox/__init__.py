"""Tools that most agents need: files below a root, programs, containers, pages of the web. Each has limits, and beats as it advances."""

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.agent.toolbox.command import CommandRunner, Container, run_command
    from tenure.agent.toolbox.fetch import WebFetcher, fetch_page
    from tenure.agent.toolbox.filesystem import Filesystem, list_files, read_file, search_files, write_file

__all__ = [
    "CommandRunner",
    "Container",
    "Filesystem",
    "WebFetcher",
    "fetch_page",
    "list_files",
    "read_file",
    "run_command",
    "search_files",
    "write_file",
]

__getattr__ = lazy_names(
    __name__,
    {
        "command": "CommandRunner Container run_command",
        "fetch": "WebFetcher fetch_page",
        "filesystem": "Filesystem list_files read_file search_files write_file",
    },
)
