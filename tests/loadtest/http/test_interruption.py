import os
import signal

import pytest

from loadtest.http import interruption
from loadtest.http.interruption import held_back, interrupt_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_waits_until_the_block_has_ended(number: signal.Signals) -> None:
    before, finished = signal.getsignal(number), False
    with pytest.raises(KeyboardInterrupt), held_back():
        os.kill(os.getpid(), number)
        finished = True
    assert finished
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_raises_even_where_the_shell_had_it_ignored(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption, "_received", [])
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(number, signal.SIG_IGN)
        interrupt_on_signals()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
