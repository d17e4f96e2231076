"""The devices of a virtual Pluto as a client sees them: attributes of chip and cores, by the names of a real one."""
