# %% [markdown]
# # A lab of virtual Plutos
#
# The lab `pluto-virtual` has five ADALM-Plutos that are programs: a server, three clients and a jammer. pyadi-iio
# and libiio talk to them over TCP as to hardware, and they hear each other through one simulated air. The same
# config with the addresses of real boards in its lab file runs on those.

# %%
from pathlib import Path

import matplotlib.pyplot as plt

from fl.cli.main import main
from fl.run import run

folder = Path("runs/example-virtual-plutos")
result = run("pluto-virtual", folder, overrides={"uplink.uplinks": 2, "local.epochs": 10})
print(f"accuracy {100 * result.accuracy:.1f} % after {result.uplinks} uplinks")
print(result.privacy[0].conditions)

# %% [markdown]
# Noise and gains were measured on the air, in every uplink. `airdp inspect` shows what the radios did in one of
# them.

# %%
main(["inspect", str(folder), "--out", str(folder / "inspected")])

# %%
figure, axes = plt.subplots(1, 2, figsize=(12, 3.6), layout="constrained")
for axis, name in zip(axes, ("spectrum", "constellation"), strict=True):
    axis.imshow(plt.imread(folder / "inspected" / f"{name}.png"))
    axis.set_axis_off()
figure.savefig(folder / "virtual-plutos.png", dpi=100)
