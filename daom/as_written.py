"""A YAML file in which every scalar stays the text that was written."""

from __future__ import annotations

from pathlib import Path

import yaml

from daom.errors import ConfigError


def read_as_written(path: Path) -> object:
    """Return what a file holds: YAML would make 16:21 a number, and +0.3 the same as 0.3.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        found: object = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    return found
