"""Entry point: the agent starts without the command-line framework, all other commands with it."""

import sys

from schemas.settings import SettingsError

# Packages of the extras, which a plain `pip install .` leaves out.
_OPTIONAL = ("typer", "rich", "numpy", "polars", "duckdb", "pytz", "yaml")


def main() -> int:
    """Run `spazio COMMAND …` and return its exit status."""
    try:
        if sys.argv[1:2] == ["agent"]:
            from spazio.command import agent

            return agent.main(sys.argv[2:])
        from spazio import cli

        return cli.main()
    except SettingsError as error:
        many = "s" if len(error.faults) > 1 else ""
        sys.stderr.write(f"spazio: {len(error.faults)} fault{many} in the settings:\n")
        sys.stderr.writelines(f"  {fault}\n" for fault in error.faults)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OPTIONAL:
            raise
        sys.stderr.write(
            f"spazio: this command needs the Python package {package}: pip install 'spazio[all]', or in a checkout "
            "pip install '.[all]'\n"
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
