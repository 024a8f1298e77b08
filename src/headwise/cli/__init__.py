"""The words a user types: the only folder that writes to the terminal."""
