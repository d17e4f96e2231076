"""An ordinary ClientApp: it returns the trained model. The mod takes the update out, and the radio sends it."""

import copy

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fl.flower.mod import over_the_air
from over_the_air.task import config_of, learner_of, train

app = ClientApp(mods=[over_the_air])


@app.train()
def train_here(message: Message, context: Context) -> Message:
    """Train from the server's model on this client's data."""
    config, client = config_of(context), int(context.node_config["partition-id"])
    learner = learner_of(config)
    data, net = learner.clients[client], copy.deepcopy(learner.model)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    said = message.content["config"]
    train(net, data.x, data.y, config, said["proximal-mu"], seed=1000 * said["server-round"] + client)
    return Message(
        RecordDict(
            {
                "arrays": ArrayRecord(net.state_dict()),
                "metrics": MetricRecord({"num-examples": len(data.y)}),
            }
        ),
        reply_to=message,
    )
