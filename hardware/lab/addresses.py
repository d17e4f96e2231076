"""Where the radios of a lab are, as its file says: each has an address of its own, and all are of one kind."""

from hardware.lab.model import Lab, LabRadio
from hardware.lab.registry import registry
from hardware.radio.errors import LabFileError, MixedLabError

_ONE_KIND = (
    "all radios of a lab are of one kind, because those without timestamps cannot be given the count of those that "
    "have them; make two labs of it"
)


def addresses_of(lab: Lab, kind: str) -> dict[str, str]:
    """The address of each radio by name. kind: what all of them must be, as its `Discovery` calls it.

    `LabFileError` where one has none, or two have the same; `MixedLabError` where one is of another kind.
    """
    found: dict[str, str] = {}
    for radio in lab.radios:
        if not radio.address:
            written = " or ".join(f'"{scheme}…"' for scheme in _schemes()[kind][:2])
            raise LabFileError(
                f"{lab.source}: '{radio.name}' has no address: run `airdp radios`, and write a [[radio]] with its own "
                f"address ({written}) for each {kind}"
            )
        address = address_of(lab, radio.name, kind)
        if address in found.values():
            raise LabFileError(f"{lab.source}: two radios have the address {address}: each {kind} has its own")
        found[radio.name] = address
    return found


def address_of(lab: Lab, name: str, kind: str) -> str:
    """The address of one radio; `LabFileError` where it has none, `MixedLabError` where it is not of that kind."""
    address = lab.address_of(name)
    other = _kind_at(address)
    if other not in ("", kind):
        raise MixedLabError(
            f"{lab.source}: '{name}' at {address} is a {other}, and the backend '{lab.backend.name}' reaches its "
            f"radios as a {kind}: {_ONE_KIND}"
        )
    return address


def require_one_kind(lab: Lab) -> None:
    """`MixedLabError` where the addresses of two radios say that they are of different kinds, whatever the backend."""
    first: LabRadio | None = None
    usual = ""
    for radio in lab.radios:
        kind = _kind_at(radio.address)
        if kind and first is None:
            first, usual = radio, kind
        if first is not None and kind not in ("", usual):
            raise MixedLabError(
                f"{lab.source}: '{radio.name}' at {radio.address} is a {kind}, and '{first.name}' at {first.address} "
                f"is a {usual}: {_ONE_KIND}"
            )


def _kind_at(address: str) -> str:
    """What an address says that there is; nothing where it does not say."""
    if not address:
        return ""
    return next((kind for kind, begins in _schemes().items() if address.startswith(begins)), "")


def _schemes() -> dict[str, tuple[str, ...]]:
    """With what the addresses of radios begin, by kind."""
    kinds = [backend.discovery for backend in registry().backends.values() if backend.discovery is not None]
    return {one.kind: one.schemes for one in kinds}
