"""How does a file come in an HTTP form (multipart)? Written by hand, so that no mistake of our encoder hides behind
itself."""

from __future__ import annotations

from typing import Final

BOUNDARY: Final = "------------------------d74496d66958873e"
"""As curl makes them: the leading dashes look like more of the two that begin a delimiter."""
DELIMITER: Final = f"--{BOUNDARY}".encode()
FORM_TYPE: Final = f"multipart/form-data; boundary={BOUNDARY}"
FORM: Final = f"Content-Type: {FORM_TYPE}"
FORM_HEADERS: Final = {"Content-Type": FORM_TYPE}


def form(
    content: bytes = b"1,2,3", file_name: str = "in.txt", *, field: str = "file", boundary: str = BOUNDARY
) -> bytes:
    """A body with one file."""
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{file_name}"\r\n\r\n'
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
