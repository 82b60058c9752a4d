"""A new project: what was chosen, the files that follow from it, and the directory that they are written into.

A project needs usechat. If this usechat came from an index, the project asks for it by its version. Otherwise (a
checkout, or a wheel that was built from one) no index has it, so the project gets a wheel of it in ``vendor/``: it
then runs on other machines and in containers, too.
"""

import re
from pathlib import Path
from typing import Final, Literal

import msgspec

from usechat import __version__
from usechat.errors import CannotStart, InvalidSetting
from usechat.starter.templates import rendered, template_files
from usechat.starter.wheel import is_from_an_index, wheel

__all__ = ["FRAMEWORKS", "PAGES", "Framework", "Page", "Project", "project_name", "write"]

Framework = Literal["none", "pydantic-ai", "langgraph", "openai-agents"]
Page = Literal["none", "vite", "next"]

FRAMEWORKS: Final[dict[Framework, str]] = {
    "none": "a function of your own; it needs no key",
    "pydantic-ai": "Pydantic AI",
    "langgraph": "LangChain on LangGraph",
    "openai-agents": "the OpenAI Agents SDK",
}
"""The frameworks of a project's agent, and what they are."""
PAGES: Final[dict[Page, str]] = {
    "none": "the page that comes with usechat",
    "vite": "a page of your own: React, built with Vite",
    "next": "a page of your own: React on Next.js",
}
"""The pages of a project, and what they are."""
_NAME: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,62}[a-z0-9])?")
_PACKAGES: Final = frozenset({"langchain", "langgraph", "openai", "openai-agents", "pydantic-ai", "usechat"})
"""Packages that projects need: a project of the same name would hide them."""


class Project(msgspec.Struct, frozen=True):
    """A project to be written.

    >>> Project("my-chat", "langgraph", "next").title
    'My chat'
    """

    name: str
    framework: Framework = "none"
    page: Page = "none"
    is_vendored: bool = False
    """Whether the project has a wheel of usechat."""

    @property
    def title(self) -> str:
        """The title of the page."""
        return self.name.replace("-", " ").capitalize()

    @property
    def traits(self) -> frozenset[str]:
        """What selects the templates."""
        traits = ["all", f"agent-{self.framework}", f"page-{self.page}"]
        traits += ["model"] if self.framework != "none" else []
        traits += ["react"] if self.page != "none" else []
        traits += ["vendored"] if self.is_vendored else ["released"]
        return frozenset(traits)

    def files(self) -> dict[str, str]:
        """Return the texts of the files by their paths."""
        values = {"name": self.name, "title": self.title, "version": __version__}
        templates = template_files(self.traits)
        return {path: rendered(template, self.traits, values) for path, template in templates.items()}


def project_name(directory: Path) -> str:
    """Return the name of a project in a directory. Raises ``InvalidSetting`` if that is no name for a package.

    >>> project_name(Path("work/My Chat"))
    'my-chat'
    """
    name = re.sub(r"[\W_]+", "-", directory.name.lower())
    if not _NAME.fullmatch(name):
        raise InvalidSetting(
            f"{directory.name!r} cannot be the name of a project; use up to 64 letters, digits and hyphens, and begin"
            " with a letter, such as my-chat"
        )
    if name in _PACKAGES:
        raise InvalidSetting(f"{name!r} is a package that the project needs; give the project another name")
    return name


def write(directory: Path, framework: Framework, page: Page) -> list[str]:
    """Write a project into a new or empty directory; return the paths of its files.

    Raises ``CannotStart`` if the directory has files, or cannot be written.
    """
    project = Project(project_name(directory.resolve()), framework, page, is_vendored=not is_from_an_index())
    contents = {path: text.encode() for path, text in project.files().items()}
    if project.is_vendored:
        name, content = wheel()
        contents[f"vendor/{name}"] = content
    try:
        if directory.exists() and any(directory.iterdir()):
            raise CannotStart(f"{directory} is not empty; name a directory that does not exist yet")
        for path, content in contents.items():
            file = directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    except OSError as error:
        raise CannotStart(f"{directory} cannot be written: {error.strerror}") from None
    return sorted(contents)
