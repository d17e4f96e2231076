"""The parameters of a running flowgraph by XML-RPC, from somebody who does not wait for ever."""

import http.client
import xmlrpc.client


class _Transport(xmlrpc.client.Transport):
    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = timeout_s

    def make_connection(self, host: "tuple[str, dict[str, str]] | str") -> http.client.HTTPConnection:
        connection = super().make_connection(host)
        connection.timeout = self._timeout_s
        return connection


def control_proxy(url: str, timeout_s: float) -> xmlrpc.client.ServerProxy:
    """The server at `url`; a call that takes longer raises `TimeoutError`."""
    return xmlrpc.client.ServerProxy(url, transport=_Transport(timeout_s), allow_none=True)
