"""`python -m headwise` is the command `headwise`."""

from headwise.cli.main import run

if __name__ == "__main__":
    run()
