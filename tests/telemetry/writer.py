"""A process that records numbered calls into a store: `python -m tests.telemetry.writer PATH COUNT [LIMIT]`.

It says "recorded" when COUNT are on disk, then goes on until it is killed, unless COUNT is negative: then it ends.
With LIMIT no file of its may grow beyond so many bytes, as on a disk that is full.
"""

import json
import resource
import sys
import time
from pathlib import Path

from shortlist.telemetry.ledger import Ledger
from shortlist.telemetry.recorder import Recorder
from shortlist.telemetry.redaction import Privacy
from tests.telemetry.happenings import call, events_in

SECONDS = 60.0


def main(path: Path, count: int, limit: int | None) -> None:
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    recorder = Recorder(events_in(path), Ledger(Privacy()))
    for number in range(abs(count)):
        recorder(call(f"s/{number}", size=number))
        if number % 500 == 499:
            time.sleep(0.01)
    if count < 0:
        recorder.close(SECONDS)
        print(json.dumps(recorder.lost), flush=True)
        return
    while not path.is_file() or stored(path) < count:
        time.sleep(0.02)
    print("recorded", flush=True)
    for number in range(count, 10**9):
        recorder(call(f"s/{number}", size=number))
        if number % 100 == 0:
            time.sleep(0.001)


def stored(path: Path) -> int:
    return int(events_in(path).database.query("SELECT count(*) FROM events")[0][0])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
