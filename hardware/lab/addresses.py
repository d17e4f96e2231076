"""Where the radios of a lab are, as its file says: each has an address of its own, and all are of one kind."""

from hardware.lab.model import Lab
from hardware.lab.registry import registry
from hardware.radio.errors import LabFileError, MixedLabError


def addresses_of(lab: Lab, kind: str) -> dict[str, str]:
    """The address of each radio by name. kind: what all of them must be, as its `Discovery` calls it.

    `LabFileError` where one has none, or two have the same; `MixedLabError` where one is of another kind.
    """
    kinds = [backend.discovery for backend in registry().backends.values() if backend.discovery is not None]
    schemes = {one.kind: one.schemes for one in kinds}
    found: dict[str, str] = {}
    for radio in lab.radios:
        if not radio.address:
            written = " or ".join(f'"{scheme}…"' for scheme in schemes[kind][:2])
            raise LabFileError(
                f"{lab.source}: '{radio.name}' has no address: run `airdp radios`, and write a [[radio]] with its own "
                f"address ({written}) for each {kind}"
            )
        other = next((name for name, begins in schemes.items() if radio.address.startswith(begins)), kind)
        if other != kind:
            raise MixedLabError(
                f"{lab.source}: '{radio.name}' at {radio.address} is a {other}, and the backend '{lab.backend.name}' "
                f"reaches its radios as a {kind}: all radios of a lab are of one kind, because those without "
                "timestamps cannot be given the count of those that have them; make two labs of it"
            )
        if radio.address in found.values():
            raise LabFileError(f"{lab.source}: two radios have the address {radio.address}: each {kind} has its own")
        found[radio.name] = radio.address
    return found
