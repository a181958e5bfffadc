"""Checks of a site with the client library nats-py: `clients.py HOST:PORT`. Prints `fine` at the end."""

import asyncio
import sys

import nats
from nats.errors import NoRespondersError


async def main(address):
    one = await nats.connect(f"nats://{address}", name="one", allow_reconnect=False)
    two = await nats.connect(f"nats://{address}", name="two", allow_reconnect=False)

    # Wildcards and headers.
    star, rest = await one.subscribe("py.*.x"), await one.subscribe("py.>")
    await one.flush()
    await two.publish("py.a.x", b"hello", headers={"kind": "greeting"})
    await two.publish("py.b", b"")
    message = await star.next_msg(30)
    assert (message.subject, message.data, message.headers) == ("py.a.x", b"hello", {"kind": "greeting"}), message
    assert [(await rest.next_msg(30)).subject for _ in range(2)] == ["py.a.x", "py.b"]

    # Request and reply, and a request that nobody answers.
    async def answer(message):
        await message.respond(message.data.upper())

    await one.subscribe("py.service", cb=answer)
    await one.flush()
    assert (await two.request("py.service", b"loud", timeout=30)).data == b"LOUD"
    try:
        await two.request("nobody.here", b"", timeout=30)
        raise AssertionError("somebody answered")
    except NoRespondersError:
        pass

    # Queue groups: each message to one member.
    counts = [0, 0, 0]

    def member(index):
        async def count(_):
            counts[index] += 1

        return count

    for index in range(3):
        await one.subscribe("py.work", "workers", cb=member(index))
    await one.flush()
    for _ in range(300):
        await two.publish("py.work", b"x" * 100)
    await two.flush()
    while sum(counts) < 300:
        await asyncio.sleep(0.01)
    assert all(counts), counts

    # An end after so many, and large messages.
    few = await one.subscribe("py.few")
    await few.unsubscribe(limit=2)
    large = await one.subscribe("py.large")
    await one.flush()
    for index in range(4):
        await two.publish("py.few", str(index).encode())
    await two.publish("py.large", bytes(1_000_000))
    assert [(await few.next_msg(30)).data for _ in range(2)] == [b"0", b"1"]
    assert len((await large.next_msg(30)).data) == 1_000_000

    # No stream is kept here, which a client is told.
    try:
        await two.jetstream().account_info()
        raise AssertionError("there is JetStream")
    except nats.js.errors.ServiceUnavailableError as error:
        assert error.err_code == 10076, error

    await one.close()
    await two.close()
    print("fine")


asyncio.run(main(sys.argv[1]))
