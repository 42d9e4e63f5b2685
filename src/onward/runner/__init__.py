"""The runner: claims a run, opens the engine, appends what it says, settles it or follows where it continues.

``desk`` is what it needs from the platform, here or over a network; ``driving`` is one run; ``executing`` keeps watch over
it; ``conversing`` is what a person's message sets off. The store is synchronous, so each call to it goes to a worker
thread; the event loop only waits.
"""

from onward.runner.conversing import run_blocking, run_session
from onward.runner.driving import Listener, RunResult
from onward.runner.executing import execute, execute_and_follow, execute_at

__all__ = (
    "Listener",
    "RunResult",
    "execute",
    "execute_and_follow",
    "execute_at",
    "run_blocking",
    "run_session",
)
