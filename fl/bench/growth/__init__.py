"""How an uplink grows with the number of clients and of coordinates: time, memory, and soundings in groups."""
