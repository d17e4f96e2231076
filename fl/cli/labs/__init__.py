"""Commands about radios, and about what is installed for them."""
