"""`headwise` and `python -m headwise`: the command line, which may be stopped while it is still being loaded."""

import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C is one sentence from the beginning to the end."""
    try:
        from headwise.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("headwise: stopped; nothing was written\n")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not disturb the end of the process


if __name__ == "__main__":
    main()
