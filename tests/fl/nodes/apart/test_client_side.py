"""What a client knows of its own sending when it looks at the server's row."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fl.errors import PrivacyError
from fl.nodes.apart.client import ClientSide
from fl.nodes.apart.own_budget import Budget
from fl.nodes.apart.own_ledger import OwnLedger
from fl.privacy.accountant import Accountant
from fl.privacy.ledger import Ledger
from fl.privacy.sensitivity import Clipping
from fl.uplink.modes import Backoff
from tests.fl.nodes.apart.test_own_ledger import HEADER
from tests.fl.nodes.radios import TAU, lab_of, opened, power_of

COORDINATES = 1000
SHORT: dict[str, Any] = {"quiet_samples": 8192, "sounding_symbols": 8}


@pytest.mark.parametrize("backoff", list(Backoff))
def test_a_row_that_charges_less_than_a_client_may_arrive_with_is_refused(tmp_path: Path, backoff: Backoff) -> None:
    """With `actual` a short update is sent with s_i = 1, so a row that counts on the announced s_i charges too little.

    The gains in the plan are the oracle: the server's own accountant makes them.
    """
    lab = lab_of()
    power = power_of(alpha_u=300.0, backoff=backoff, diagnosis=False)
    with opened(lab, COORDINATES, power=power, payload_rms=0.5, **SHORT) as uplink:
        current = uplink.coordinator.plan(1, 0)
        place, (node, decision) = next(
            (place, pair)
            for place, pair in enumerate(zip(uplink.clients, current.decisions, strict=True))
            if pair[1].backoff > 1.1
        )
        announced = node._announcement
        assert announced is not None
        sizes = tuple(int(size) for size in uplink.sizes)
        header = replace(HEADER, sizes=sizes, view=current.mechanism.view)
        own = OwnLedger(tmp_path / "own", header, place, Budget(), Accountant.EXACT)
        side = ClientSide(lab, lambda *_: None, own, Clipping.whole(TAU), node)  # type: ignore[arg-type,return-value]
        promised = side._promise(1, announced, decision)
        planned = current.mechanism.received_gains
        assert promised.gain_upper == pytest.approx(planned[place], rel=1e-12)
        counted = decision.gain_upper / (1.0 if backoff is Backoff.ACTUAL else 1.01)
        with Ledger.create(tmp_path / "server.jsonl", header) as server:
            less = replace(
                current.mechanism,
                received_gains=tuple(counted if one == place else gain for one, gain in enumerate(planned)),
            )
            server.authorise(less)
            with pytest.raises(PrivacyError, match="this client may arrive with"):
                own.authorise(server.last_line, promised)
            server.authorise(current.mechanism)
            own.authorise(server.last_line, promised)
        own.close()
