"""The `offramp` command with PyTorch imported already: each command is a fork of one process.

`python -m tests.docs.forks` is that process, `ready` starts it. To import PyTorch and transformers
takes longer than what most of a page's commands do.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

_ROOT = Path(__file__).parents[2]
# Asks the process to run a command, and ends as that does. `offramp serve`, which needs no
# PyTorch and is told to end by a signal, is the real one.
_CLIENT = """#!{python}
import json, os, socket, sys
if sys.argv[1] == "serve":
    os.execv({offramp!r}, sys.argv)
asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"%10d" % len(asked)], [0, 1, 2])
    server.sendall(asked)
    sys.exit(int(server.makefile().read() or 1))
"""


@contextmanager
def ready(folder: Path) -> Iterator[Path]:
    """Yield the folder, with a program `offramp` in it that works until the block ends."""
    # Linux keeps such a name apart from files, so that it may not be too long.
    address = f"\0offramp-{os.getpid()}"
    offramp = folder / "offramp"
    real = str(Path(sysconfig.get_path("scripts")) / "offramp")
    offramp.write_text(_CLIENT.format(python=sys.executable, offramp=real, address=address))
    offramp.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen()
        number = door.fileno()
        command = [sys.executable, "-m", __name__, str(number)]
        process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[number])
    try:
        yield folder
    finally:
        process.terminate()
        process.wait()


def _main(number: int) -> None:
    """Run what is asked for at the door, an open socket that listens."""
    import_module("export.bundle")
    import_module("models.cli")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=number) as door:
        while True:
            caller, _ = door.accept()
            with caller:
                if os.fork() == 0:
                    door.close()
                    _run(caller)


def _run(caller: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(caller, 10, 3)
    with caller.makefile("rb") as message:
        sys.argv, folder, environment = json.loads(message.read(int(size)))
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(folder)
    os.environ |= environment
    status = _status()
    sys.stdout.flush()
    sys.stderr.flush()
    caller.sendall(str(status).encode())
    os._exit(0)


def _status() -> int:
    from serve.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _main(int(sys.argv[1]))
