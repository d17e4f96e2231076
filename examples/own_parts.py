# %% [markdown]
# # Your own data, model and algorithm
#
# A config names what is yours by import path. `my_letters.py`, beside this file, has a data set of 26 letters, a
# small convolutional network and FedAdam; nothing of airdp changes for them.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from my_letters import letters

from fl.run import run

folder = Path("runs/example-own-parts")
config = {
    "name": "letters",
    "data": {"set": "my_letters:letters", "arguments": {"per_letter": 40, "seed": 1}},
    "partition": {"kind": "dirichlet", "clients": 8, "dirichlet_alpha": 1.0},
    "model": {"module": "my_letters:Net", "arguments": {"classes": 26}, "input": "channels-first"},
    "local": {"epochs": 3, "lr": 0.05},
    "algorithm": {"name": "my_letters:FedAdam", "arguments": {"lr": 0.03}},
    "uplink": {"kind": "symbol", "uplinks": 12},
    "power": {"channel_epsilon": 20.0},
    "jammer": {"role": "dedicated"},
    "privacy": {"epsilon": 15.0, "clip_norm": 2.0},
}
result = run(config, folder)
print(f"accuracy {100 * result.accuracy:.1f} % of 26 letters, epsilon {result.privacy[0].epsilon['exact']:.3g}")

# %% [markdown]
# The trained model is an ordinary `nn.Module`.

# %%
_, (x, y) = letters(40, 1)
with torch.no_grad():
    guessed = result.model(torch.from_numpy(x[:, None] / 255).float()).argmax(1).numpy()

figure, axes = plt.subplots(2, 13, figsize=(8, 1.9), layout="constrained")
for axis, number in zip(axes.flat, range(26), strict=True):
    place = int((y == number).argmax())
    axis.imshow(x[place], cmap="gray_r")
    right = guessed[place] == number
    axis.set_title(chr(ord("a") + guessed[place]), color="tab:green" if right else "tab:red", fontsize=9)
    axis.set_axis_off()
figure.suptitle("what the model takes them for", fontsize=10)
figure.savefig(folder / "own-parts.png", dpi=100)
