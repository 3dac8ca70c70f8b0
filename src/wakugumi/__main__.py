"""`python -m wakugumi` is the command `waku`."""

from wakugumi.app.cli import main

if __name__ == "__main__":
    main()
