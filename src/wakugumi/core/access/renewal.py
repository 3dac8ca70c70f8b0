"""When is a certificate renewed? (SPEC O1) When a third of its life is left."""

from __future__ import annotations

from wakugumi.limits.access import CERTIFICATE_RENEWED_SHARE


def is_due(begins_at: float, ends_at: float, now: float) -> bool:
    """Is it time to renew a certificate with this life? All by the wall clock."""
    return ends_at - now <= (ends_at - begins_at) * CERTIFICATE_RENEWED_SHARE
