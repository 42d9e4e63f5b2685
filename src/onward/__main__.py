"""``python -m onward``: the command line, where its program is not on the path."""

from __future__ import annotations

from onward.surfaces.cli.main import main

if __name__ == "__main__":
    main()
