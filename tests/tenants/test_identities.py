#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The identity of a tenant, and the separation of tenants by it."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403


@test("another user's process is an identity of its own, and cannot use a session that is not its own")
def another_identity():
    with open_daemon() as daemon, Client(daemon) as mine:
        other = Tenant(daemon, f"""
client = Client(daemon)
print(client.call("Admin/Status", pb.StatusRequest()).version, flush=True)
refused("PERMISSION_DENIED", "PERMISSION_DENIED", client.call, "Memory/Allocate", pb.AllocateRequest(bytes=64), session={mine.id})
client.close()
print("ok", flush=True)
""")
        assert other.line(), "no version"
        assert other.line() == "ok"
        other.wait()


if __name__ == "__main__":
    main()
