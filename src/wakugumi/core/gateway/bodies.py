"""How far is the body of a request? Received once, and used by the request and by the flight that sends it."""

from __future__ import annotations

from wakugumi.core.flows import Flow, Promise
from wakugumi.core.gateway.events import BodyReceived, DropBody, FinishBody
from wakugumi.core.gateway.state import GatewayState
from wakugumi.errors import Lost


class Body:
    """The body of one request."""

    def __init__(self, state: GatewayState, request: int, size: int | None) -> None:
        self._state = state
        self.request = request
        self.size = size
        """Size of the body: as declared, then as received."""
        self.is_whole = False
        self.digest = ""
        """The digest of the request, once the body is whole."""
        self.failure: Exception | None = None
        self.ended: Promise[None] = Promise(state.flows)
        """Kept when the body is whole, or has failed."""
        self._filling: Flow[None] | None = None
        self._users = 1

    def share(self) -> None:
        """Adds a user, which must call `close`."""
        self._users += 1

    def close(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._state.flows.emit(DropBody(self.request))

    def received(self, received: BodyReceived) -> None:
        if received.is_whole:
            self.is_whole, self.size, self.digest = True, received.size, received.digest
            self.ended.keep(None)

    def fill(self) -> None:
        """Receives the rest, beside the flow that runs now."""
        if self._filling is None and not self.is_whole:
            self._filling = self._state.start(self._fill, "receive a body")

    def stop(self) -> None:
        """The request has ended: no more of its body can be received."""
        if self._filling is not None:
            self._filling.cancel()
        self._fail(Lost("the request has ended", "dead"))
        self.close()

    async def whole(self) -> None:
        """Waits until the body is whole. Raises what went wrong."""
        self.fill()
        await self.ended
        if self.failure is not None:
            raise self.failure

    async def _fill(self) -> None:
        try:
            self.received(await FinishBody(self.request))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.ended.is_kept:
            self.failure = error
            self.ended.keep(None)
