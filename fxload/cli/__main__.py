"""`python -m fxload.cli`: the command, with the interpreter of one's choice."""

from __future__ import annotations

from fxload.cli.app import main

if __name__ == "__main__":
    main()
