"""Starts the air node, and steps with what comes over the air."""

import copy
import json

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fl import flatten
from fl.flower.accountant import LedgerAccountant
from fl.flower.air import open_air
from fl.flower.mod import place_of
from fl.flower.strategy import OverTheAir
from over_the_air.task import config_of, learner_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds; what came of it is in result.json beside the ledger."""
    config = config_of(context)
    learner = learner_of(config)
    net = copy.deepcopy(learner.model)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        scores = learner.scores(flatten(net), learner.test)
        return MetricRecord({"accuracy": scores.accuracy, "loss": scores.loss})

    with open_air(config, place_of(context), out=str(context.run_config["out"])) as air:
        result = OverTheAir(air).start(
            grid, ArrayRecord(net.state_dict()), num_rounds=config.uplink.uplinks, evaluate_fn=evaluate
        )
        spent = LedgerAccountant(air.ledger_path).get_privacy_spent()
        rounds = {number: dict(said) for number, said in result.evaluate_metrics_serverapp.items()}
        sent = {number: dict(said) for number, said in result.train_metrics_clientapp.items()}
        summary = {"evaluated": rounds, "sent": sent, "client_level": vars(spent)}
        (air.out / "result.json").write_text(json.dumps(summary, indent=2))
