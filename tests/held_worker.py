"""A ``daom worker`` whose owner is held at the third record of each partition, for good.

``python -m tests.held_worker task`` holds the task that folds; ``loop`` all that the worker does,
as a computation would that never ends.
"""

import asyncio
import sys
import threading

from daom.__main__ import main
from streams.owner import Owner

HELD_AT = 2


def hold(how):
    take = Owner.take

    async def held(self, number, record, acknowledge):
        if record.offset >= HELD_AT:
            if how == "loop":
                threading.Event().wait()
            await asyncio.Event().wait()
        await take(self, number, record, acknowledge)

    Owner.take = held


if __name__ == "__main__":
    hold(sys.argv.pop())
    sys.argv.append("worker")
    main()
