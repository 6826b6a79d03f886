"""What pyproject.toml cannot say about a build."""

from pathlib import Path

from setuptools import setup

BUILD = Path("build")
BUILD.mkdir(exist_ok=True)
setup(
    # in the root, pytest would take it for an installed distribution, and __main__.py for a module of it to rewrite
    options={"egg_info": {"egg_base": str(BUILD)}},
    script_name="setup.py",  # which build_py leaves out; a build front end runs this file under another name
)
