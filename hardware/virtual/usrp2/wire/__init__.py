"""What goes over the network: datagrams of each port, and how many of them are moved at once."""
