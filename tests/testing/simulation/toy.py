"""A small scenario: greetings are counted, once for each message."""

from onceward.testing.simulation import Scenario, violated

HINTS = frozenset({"hints lost"})


class Greeting(Scenario):
    operations = (12, 12)
    clients = (3, 3)
    without = HINTS

    def request(self, random):
        return random.choice(["Ann", "Bob"])

    async def handle(self, node, message):
        async def greet(tx):
            key = ("greeting", message.id)
            if await tx.get(key) is None:
                count = (await tx.get(("count", message.request)) or 0) + 1
                tx.put(("count", message.request), count)
                tx.put(key, count)
            return await tx.get(key)

        return await node.run(greet)

    def judge(self, history):
        for name, count in history.values("count").items():
            asked = [call for call in history.calls if call.request == name]
            if sorted(call.answer for call in asked) != list(range(1, count + 1)):
                violated("miscounted", f"{name}: {asked}")


class Forgetful(Greeting):
    """Counts a message each time it arrives."""

    async def handle(self, node, message):
        async def greet(tx):
            count = (await tx.get(("count", message.request)) or 0) + 1
            tx.put(("count", message.request), count)
            return count

        return await node.run(greet)
