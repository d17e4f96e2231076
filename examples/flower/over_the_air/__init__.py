"""A Flower app whose updates travel over the air."""
