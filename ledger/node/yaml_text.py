"""What does this YAML say?  YAML 1.2 where it matters for settings: `off` is a word, and no key stands twice.

The library follows YAML 1.1, in which `mode: off` is `mode: false`, and takes the last of two equal keys in silence.
"""

import re
from typing import Any

import yaml

from ledger.core.errors import InvalidSetting

BOOLEAN = "tag:yaml.org,2002:bool"


class Loader(yaml.SafeLoader):
    """Reads plain values."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the library's own attribute)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != BOOLEAN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a mapping; a key that stands twice is an error."""
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver(BOOLEAN, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def read_yaml(text: str, source: str) -> Any:
    """Read a YAML text.

    Args:
        text: The text.
        source: Where it comes from, for the error.

    Raises:
        InvalidSetting: It is no YAML.
    """
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise InvalidSetting(source, rule="YAML", expected="a mapping of settings", found=error) from error
