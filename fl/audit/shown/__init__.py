"""What an attack on a claim looks like: a picture of each client, and a page of all of them."""
