"""`python -m polyhead` is the program of the same version."""
import os
import sys
from importlib import metadata

from ._c import CHECKOUT, HERE


def program() -> str:
    """Where make has put it in a checkout, an editable install too, or where pip has."""
    places = [os.path.join(os.path.dirname(HERE), "bin", "polyhead")]  # pip --target
    try:
        files = metadata.files("polyhead") or []
        places += [str(file.locate()) for file in files if file.name == "polyhead"]
    except metadata.PackageNotFoundError:
        pass
    if not os.path.isdir(os.path.join(HERE, "lib")):
        places.append(os.path.join(CHECKOUT, "build", "polyhead"))
    for path in reversed(places):
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    sys.exit("polyhead: the program was found neither in the installed package nor in a "
             "checkout of Polyhead")


if __name__ == "__main__":
    path = program()
    os.execv(path, [path, *sys.argv[1:]])
