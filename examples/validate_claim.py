# %% [markdown]
# # Attacking a claim
#
# `airdp validate` sends two neighbouring inputs many times over a lab's radios and looks how far apart they can be
# told by whoever has every received sample. What is claimed must be more than what is found, in every direction and
# in each part of the claim: gains, the receiver's noise, the payload's. Exit code 3 says that a claim is refuted.

# %%
from pathlib import Path

import matplotlib.pyplot as plt

from fl.cli.main import main

folder = Path("runs/example-validate-claim")
attack = ["validate", "loopback", "--client", "client-1", "--trials", "128", "--out", str(folder)]
code = main(attack)
print("the claim holds" if code == 0 else "the claim is refuted")

# %% [markdown]
# With 128 trials only a coarse lie would show; the table says how coarse. The default, 2000 trials of every client,
# takes minutes and sees smaller ones.

# %%
figure, axis = plt.subplots(figsize=(12, 3.6), layout="constrained")
axis.imshow(plt.imread(folder / "client-1.png"))
axis.set_axis_off()
figure.savefig(folder / "validate-claim.png", dpi=100)
