"""What a node leaves for whoever looks after it."""

STATUS = "status.json"
"""In a node's state folder: what it was doing a second ago."""
