"""The parameters of a running flowgraph, through the XML-RPC server block that each of ours has."""

import http.client
import threading
import xmlrpc.client

from flowgraphs.control import control_proxy
from hardware.radio.errors import HardwareError, RadioTimeoutError
from hardware.radio.tx_gains import TxGainRange

_LEAST_STEP_DB = 0.25


class FlowgraphControl:
    """Any thread may use it. name: of the radio, for messages. broken: why it did not answer; nothing while it does."""

    def __init__(self, name: str, url: str, timeout_s: float) -> None:
        self.name, self.broken, self._timeout_s = name, "", timeout_s
        self._lock = threading.Lock()
        self._proxy = control_proxy(url, timeout_s)

    def set(self, parameter: str, value: float | str) -> None:
        """Change a parameter while the flowgraph runs."""
        self._call(f"set_{parameter}", value)

    def get(self, parameter: str) -> float:
        """A parameter as the flowgraph has it."""
        value = self._call(f"get_{parameter}")
        if not isinstance(value, int | float):
            raise HardwareError(f"{self.name}: its flowgraph has {parameter} = {value!r}: expected a number")
        return float(value)

    def gain_range(self) -> TxGainRange:
        """Of the USRP behind the flowgraph, as UHD counts."""
        found = self._call("get_gain_range")
        if not isinstance(found, list) or len(found) != 3:
            raise HardwareError(f"{self.name}: its flowgraph has a gain range of {found!r}: expected three numbers")
        low, high, step = (float(value) for value in found)
        return TxGainRange(low, high, step or _LEAST_STEP_DB)

    def _call(self, method: str, *arguments: float | str) -> object:
        try:
            with self._lock:
                answer: object = getattr(self._proxy, method)(*arguments)
                return answer
        except TimeoutError as error:
            self.broken = f"its flowgraph did not answer {method} for {self._timeout_s:g} s"
            raise RadioTimeoutError(f"{self.name}: {self.broken}") from error
        except xmlrpc.client.Fault as error:
            raise HardwareError(f"{self.name}: its flowgraph refused {method}: {error.faultString}") from error
        except xmlrpc.client.ProtocolError as error:
            # In its own words the address stands with the token.
            self.broken = f"its flowgraph refused the connection: {error.errcode} {error.errmsg}"
            raise HardwareError(f"{self.name}: {self.broken}") from None
        except (OSError, http.client.HTTPException) as error:
            self.broken = f"its flowgraph cannot be reached: {error}"
            raise HardwareError(f"{self.name}: {self.broken}") from error

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._proxy("close")()
