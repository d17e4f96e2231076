"""How a Dask cluster that exists is reached.

Whoever can talk to a scheduler runs code with the rights of its workers, and what a scheduler answers is unpickled
here: so it is talked to over TLS, where both sides show a certificate of the same authority.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fl.errors import ConfigError

if TYPE_CHECKING:
    from distributed import Security

TLS_FILES = {"tls_ca_file": "ca.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}
"""What a folder of certificates holds."""


@dataclass(frozen=True)
class Access:
    """How to reach a cluster. address: of its scheduler. tls: folder of certificates; None: those that Dask's own
    configuration names. insecure: without TLS, in the knowledge of what that means."""

    address: str
    tls: Path | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse a cluster that talks to anybody."""
        if self.tls is not None and not self.encrypted:
            raise ConfigError(f"--tls is for a cluster at tls://…, not '{self.address}'")
        if not self.encrypted and not self.insecure:
            raise ConfigError(
                f"the cluster at '{self.address}' is reached without TLS: whoever reaches it, or answers in its place, "
                "runs code with your rights; start it with TLS (docs/security.md) and give tls://…, "
                "or add --insecure where only you can reach its network"
            )
        missing = [] if self.tls is None else [name for name in TLS_FILES.values() if not (self.tls / name).is_file()]
        if missing:
            raise ConfigError(
                f"{self.tls} has no {missing[0]}: a folder of certificates has {', '.join(TLS_FILES.values())}"
            )

    @property
    def encrypted(self) -> bool:
        """Whether certificates are asked for."""
        return self.address.startswith("tls://")

    def security(self) -> "Security":
        """As Dask wants it."""
        from distributed.security import Security

        files = {} if self.tls is None else {key: str(self.tls / name) for key, name in TLS_FILES.items()}
        return Security(require_encryption=True, **files) if self.encrypted else Security(require_encryption=False)
