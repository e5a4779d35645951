"""How a dense layer is tied to its prior: so far, how much of the prior is mixed in, and when."""
