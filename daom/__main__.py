"""The ``daom`` command. Without the libraries that it needs, it says which extra brings them."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from daom.cli import run  # noqa: PLC0415 - the base install has no click.
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"daom: the command line needs {error.name}, which the base install leaves out: "
            "pip install 'daom[all]' (or just 'daom[cli]')\n"
        )
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
