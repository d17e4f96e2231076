"""A training loop of one's own over airdp's air: PyTorch decides what is trained, airdp carries and charges it.

    python examples/own_loop.py [FOLDER]

Five clients with handwritten digits train a linear model. Their updates are added up by simulated radios, sample by
sample; the sum arrives with a jammer's noise. Everything that privacy rests on is in the folder's ledger.
"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from fl import flatten, open_uplink, unflatten_into

pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels)
train, test = slice(0, 1500), slice(1500, None)
clients = [(x[train][i::5], y[train][i::5]) for i in range(5)]
torch.manual_seed(1)
net = torch.nn.Linear(64, 10)


def main(folder: Path) -> float:
    """Train, print accuracy and epsilon after each uplink, return the last accuracy."""
    w = flatten(net)
    settings = {"uplink.uplinks": 4, "privacy.clip_norm": 2.0}
    with open_uplink(
        "loopback", sizes=[len(y) for _, y in clients], coordinates=w.size, out=folder, overrides=settings
    ) as air:
        while air.remaining:
            w = w + air.send(lambda client, w=w: local_update(client, w)).values
            unflatten_into(net, w)
            accuracy = float((net(x[test]).argmax(1) == y[test]).float().mean())
            print(f"accuracy {100 * accuracy:.1f} %, epsilon {air.epsilon:.3g} ({air.privacy[0].label})")
        print(f"epsilon is for {air.privacy[0].conditions}")
    return accuracy


def local_update(client: int, w):
    """w_i - w after some steps on the client's own data. airdp clips it to privacy.clip_norm before it is sent."""
    unflatten_into(net, w)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    samples, targets = clients[client]
    for _ in range(20):
        optimiser.zero_grad()
        cross_entropy(net(samples), targets).backward()
        optimiser.step()
    return flatten(net) - w


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own-loop"))
