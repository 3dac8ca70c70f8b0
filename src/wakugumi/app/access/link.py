"""`waku link`: how is a browser known to a leader? By a link that is valid once."""

from __future__ import annotations

from wakugumi.adapters.net.address import parse_access_line
from wakugumi.app.admin.ask import ask
from wakugumi.app.client_settings import LEADER_HERE
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Asking
from wakugumi.app.show.output import duration, json_out, line_out, say
from wakugumi.core.access.browser_links import AskLink, BrowserLink
from wakugumi.errors import ConfigError
from wakugumi.roles.client.grid import LEADER_PORT


@with_settings
def link(*, asking: Asking) -> int:
    """waku link [OPTIONS]

    stdout is one line, the link. The browser that opens it first is known as you for 12 hours, or until your key is
    revoked or expires. Open it yourself: it is as good as your key for that time.

    Examples:
      waku link
      waku link --leader grid.example:5000
    """
    (there, _), *more = parse_access_line(asking.leader or LEADER_HERE, LEADER_PORT)
    if more:
        raise ConfigError("a link is for one leader, and several are named", f"name one: --leader {there}")
    made = ask(AskLink(), BrowserLink, asking)
    url = f"{'https' if made.is_tls else 'http'}://{there}/in/{made.word}"
    if asking.output == "json":
        json_out({"link": url, "valid_s": made.valid_s})
    else:
        line_out(url)
    say(f"The link is valid once, for {duration(made.valid_s)}.")
    return 0
