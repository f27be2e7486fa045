#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an upgrade does not lose (npugraphd --replace): sessions whose clients are away."""
from replacing import *

# ---- clients that are away --------------------------------------------------------------------------------------------

class Away:
    """A session that moves, with a buffer, whose client's connection breaks."""

    def __init__(self, daemon):
        self.client = Client(daemon, session=False)
        self.client.open_session(pb.SessionOpen(client_name="away", moves=True, grace_ms=60000))
        self.buffer = self.client.allocate(64)
        self.client.write(self.buffer, bytes(range(64)))

    def leave(self, daemon=None):
        self.client.stream.cancel()
        self.client.channel.close()
        if daemon:
            until("the daemon knows that it is away", lambda: [s for s in sessions_of(daemon) if s.session == self.client.id and s.broken])

    def come(self, daemon):
        c = Client(daemon, session=False)
        c.open_session(pb.SessionOpen(resume=pb.SessionResume(session=self.client.id, token=self.client.token)))
        assert c.opened.resumed and c.read(self.buffer) == bytes(range(64))
        c.close()


def sessions_of(daemon):
    with Client(daemon, session=False) as c:
        return list(c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions)


@test("a session whose client is away, before or behind the moment of the handover, is in the old daemon again if the new one dies")
def away_taken_back():
    with Line("--drain-grace=60s", load=False) as line:
        before, behind = Away(line.now), Away(line.now)
        before.leave(line.now)
        fresh = line.next()
        behind.leave()
        fresh.kill()
        until("the old daemon serves again", lambda: pid_of(line.now) == line.now.process.pid)
        before.come(line.now)
        behind.come(line.now)


@test("a session whose client is away moves, waits for it in the new daemon, and ends in the old one when it comes")
def away_moves():
    with Line("--drain-grace=60s", load=False) as line:
        away, old = Away(line.now), line.now
        away.leave(old)
        fresh = line.replace()
        away.come(fresh)
        assert old.wait() == 0, old.log()[-3000:]


if __name__ == "__main__":
    main()
