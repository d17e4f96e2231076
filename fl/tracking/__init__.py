"""What a run tells experiment trackers: TensorBoard, MLflow, Weights & Biases, or a user's own, behind one hook.

    tracker      the protocol, the names that ship, and which quantities go out
    tensorboard  event files in the run's folder
    mlflow       a run of MLflow's store
    wandb        an offline run of Weights & Biases

Each package is optional and imported when a config asks for it (`tracking.to`).
"""
