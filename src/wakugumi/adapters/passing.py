"""What if content only passes through? It is verified like any other, and nobody waits for the disk to have it."""

from __future__ import annotations

import os

from wakugumi.adapters.blobs import Incoming
from wakugumi.adapters.files import refused


class Passing(Incoming):
    """Content on its way to a file that is gone soon: after a loss of power it would not be looked for."""

    def finish(self) -> None:
        if self.at != self.ref.size or self._digest.hexdigest() != self.ref.sha256:
            super().finish()  # It says what is wrong.
        try:
            os.replace(self._scratch, self._path)
        except OSError as error:
            raise refused(error, "what was fetched cannot be kept") from None
        finally:
            self.close()
