"""Tools that most agents need: files below a root, programs, containers, pages of the web. Each has limits, and beats as it advances."""

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.agent.toolbox.command import CommandRunner as CommandRunner
    from tenure.agent.toolbox.command import Container as Container
    from tenure.agent.toolbox.command import run_command as run_command
    from tenure.agent.toolbox.fetch import WebFetcher as WebFetcher
    from tenure.agent.toolbox.fetch import fetch_page as fetch_page
    from tenure.agent.toolbox.filesystem import Filesystem as Filesystem
    from tenure.agent.toolbox.filesystem import list_files as list_files
    from tenure.agent.toolbox.filesystem import read_file as read_file
    from tenure.agent.toolbox.filesystem import search_files as search_files
    from tenure.agent.toolbox.filesystem import write_file as write_file

__getattr__ = lazy_names(
    __name__,
    {
        "command": "CommandRunner Container run_command",
        "fetch": "WebFetcher fetch_page",
        "filesystem": "Filesystem list_files read_file search_files write_file",
    },
)
