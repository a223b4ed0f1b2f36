"""`python -m certify`."""

from certify.cli import main

if __name__ == "__main__":
    main(prog_name="certify")
