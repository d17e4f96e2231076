# %% [markdown]
# # A first run
#
# Ten clients with handwritten digits train a model together. Their updates are added up by the air, symbol by
# symbol, in fading and with a jammer's noise; the server gets the sum and nothing else. `run` takes any config that
# `airdp configs` lists, or a file of yours, and keys to change by name.

# %%
from pathlib import Path

import matplotlib.pyplot as plt

from fl import read_ledger
from fl.run import run

folder = Path("runs/example-first-run")
result = run("quickstart", folder, overrides={"uplink.uplinks": 12, "local.epochs": 10})
print(f"accuracy {100 * result.accuracy:.1f} % after {result.uplinks} uplinks")

# %% [markdown]
# An epsilon never stands alone. Each statement says at which level it holds, against whom, and what it rests on.
# The first is the one that the config claims.

# %%
for statement in result.privacy:
    print(f"{statement.label.value}: epsilon {statement.epsilon['exact']:.4g} (exact)")
print(result.privacy[0].conditions)

# %% [markdown]
# Everything is in the run's folder. The ledger had a row on disk before each transmission; from it epsilon can be
# computed again, by `airdp ledger` or here.

# %%
ledger = read_ledger(folder / "ledger.jsonl")
print(f"{ledger.authorised} transmissions were charged, {ledger.unaccounted} of them without an account")

# %%
history = result.history
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(history["uplink"], 100 * history["accuracy"], marker="o")
left.set(xlabel="uplink", ylabel="test accuracy in %", ylim=(0, 100))
right.plot(history["uplink"], history["epsilon"], marker="o", color="tab:red")
right.axhline(5.0, linestyle="--", color="grey", label="target")
right.set(xlabel="uplink", ylabel=f"epsilon spent ({result.privacy[0].label.value})", ylim=(0, 6))
right.legend()
figure.savefig(folder / "first-run.png", dpi=100)
