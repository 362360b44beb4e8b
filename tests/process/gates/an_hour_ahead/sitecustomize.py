"""On the path of a process, its machine's wall clock is an hour ahead. Its monotonic and its boot time are right, as they always are."""

import time

_right = time.time
time.time = lambda: _right() + 3_600.0
