"""Entry point: the agent starts without the command-line framework, all other commands with it."""

import sys

from schemas.settings import SettingsError


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


if __name__ == "__main__":
    sys.exit(main())
