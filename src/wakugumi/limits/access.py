"""Keys, their rules and the connections that use them."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import MIB

RULE_ENTRIES_MAX: Final = 64
"""Entries of one list of a key's rules. Each submit is compared with all of them."""
RULE_ENTRY_CHARS_MAX: Final = 256
"""Characters of one entry of a key's rules."""
KEYS_MAX: Final = 10_000
"""Keys of a grid. Beyond it the oldest revoked or expired key gives way; some 500 bytes each."""
KEY_LIFE_S_MAX: Final = 3_650 * 86_400.0
"""Longest time until a key expires, if it does."""
KEY_LOOK_S: Final = 60.0
"""Seconds between two looks for expired keys: so late is a jump of the wall clock noticed at most."""
CERTIFICATE_SKEW_S: Final = 3_600.0
"""Seconds that a certificate may seem older than its key: clocks differ, and certificates are dated back a little."""
KEY_USE_KEPT_S: Final = 3_600.0
"""Seconds between two writes of the last uses of keys: a use costs no write of its own."""
WORKER_IDS_MAX: Final = 100_000
"""Worker ids that belong to a key: some 250 bytes each. Beyond it no worker with a new id joins."""
WORKER_IDS_PER_KEY_MAX: Final = 10_000
"""Worker ids of one key. Beyond it the oldest becomes free: one key cannot push out the ids of others."""

# Browsers
BROWSER_LINK_S: Final = 60.0
"""Time in which a link for a browser must be opened."""
BROWSER_COOKIE_S: Final = 43_200.0
"""Time for which a browser is known after it opened a link: a working day."""
BROWSER_LINKS_MAX: Final = 1_000
"""Links that wait to be opened. Beyond it the oldest goes; some 300 bytes each."""
BROWSER_COOKIES_MAX: Final = 10_000
"""Browsers that are known. Beyond it the oldest must open a new link."""
BROWSER_WORDS_PER_NAME_MAX: Final = 32
"""Links, and browsers, of one identity. Beyond it its oldest goes: one key cannot push out the browsers of others."""

# Certificates
AUTHORITY_DAYS_MAX: Final = 3_652.0
"""Life of a grid's authority in days: ten years. Every line that names its digest ends with it."""
CERTIFICATE_DAYS_MAX: Final = 90.0
"""Life of a server's certificate in days. It is renewed in time, so the operator notices only a server that was off for
a month."""
CERTIFICATE_RENEWED_SHARE: Final = 1 / 3
"""Share of a certificate's life that is left when it is renewed."""
JOINED_CERTIFICATE_DAYS_MAX: Final = 30.0
"""Life of the certificate of a machine that joined. The machine asks for the next one in time."""
CERTIFICATE_LOOK_S: Final = 3_600.0
"""Seconds between two looks whether a certificate is due to be renewed."""
CERTIFICATE_BACKDATED_S: Final = 300.0
"""A certificate begins so long before it is made: peers' clocks may be late."""
CSR_BYTES_MAX: Final = 16_384
"""Bytes of a request for a certificate. One for P-256 has some 300."""
CA_ANSWER_BYTES_MAX: Final = 65_536
"""Bytes that are read of a stranger's answer about its authority. A certificate has some 700."""
JOIN_DEADLINE_S: Final = 10.0
"""Time for each request of `waku join`."""

# Files
ACCESS_FILE_BYTES_MAX: Final = 64 * MIB
"""Bytes of a file with keys: ten thousand keys with all rules they may have would be more, and start no leader."""
ACCESS_LOCK_S: Final = 10.0
"""Time that a process waits for another one that changes the same access files, which takes some milliseconds."""
