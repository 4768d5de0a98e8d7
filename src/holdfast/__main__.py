"""`python -m holdfast` runs the command `holdfast`."""

from holdfast.lab.cli import main

if __name__ == "__main__":
    main()
