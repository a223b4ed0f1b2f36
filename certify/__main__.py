"""`python -m attnspec.certify`."""

from attnspec.certify.cli import main

if __name__ == "__main__":
    main(prog_name="certify")
