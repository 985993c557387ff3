"""`python -m hivemind_addon.evaluation.mock`."""

from hivemind_addon.evaluation.mock.command import parse_options, run

__all__ = ["main", "run"]


def main() -> None:
    """Serve with the options of the command line."""
    run(parse_options())


if __name__ == "__main__":
    main()
